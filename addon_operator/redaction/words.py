"""The words of which Kubernetes and Helm make their messages; a word that is not among them may be a value.

Pure. From the texts of errors in their sources (API machinery, validation, admission, helm), without `true`, `false`
and `null`, which are values.
"""

from __future__ import annotations

from typing import Final

_TEXT: Final = """
a about absolute accept accepted accepts access accessing accessor account action actual add added adding addition
additions address admission after again against agreed alias all allocatable allocate allocated allocation allocator
allow allowed alpha-numeric alphanumeric already also an anchor anchors and annotation annotations another any api
apis appears applied apply archive are arguments array as ascii assigned associated associative at atomic attempted
attributes audit authority authorize authorizer available await back backend backoff backofflimitexceeded bad base
base64 basic be because been before begin beginning behavior being below between bind binding bits block body boolean
both bound broken budget build building but by bytes cache caches calculate call called calling calls can can't
cancelled cannot case cel certificate certificates change changed channel character characters chars chart chart's
charts check checked checking cidr class cleaning client closed closing cluster clusters code colon column combination
commas common compare comparison compile complete condition conditions config configmap configmaps configuration
configured conflict conflicts connect connection connections consist consists constraint constraints construct contact
contain contained container containers containing contains content context continue control controller conversion
convert converted converting copy correct cost could couldn't cpu crash crashed crd crds create created creating
creation credentials current custom customresourcedefinition daemonset dash dashes data date-time deadline
deadlineexceeded declared decode decoding default defined definition delete deleted deletion denied dependencies
dependency dependent deploy deployed deployment deployments deprecated description details determine dial did didn't
diff different differs digit digits dir directive directory disabled disallowed discovery divide divided dns do
document does doesn't domain don't dot dots double downgrade downgraded driver dry-run due duplicate duplicates
duration during each either element elements empty empty-string enabled encode encoded encoding encountered end ending
endpoint endpoints ensure entries entry environment eof ephemeral equal err error errors escape etcd evaluate
evaluation event every evicted eviction exactly exceed exceeded exceeds exclusive exec executing exhausted exist
existing exists expected expecting expired expires explicit expression external extract extracting factory failed
failure failures family feature fetch fetching few field fields file files finalizer finalizers find finish finished
first flag followed following for forbidden form format found from fulfilled full fully function gate gates gateway
get getting gid given go gone got grant granted greater group groups gvk handle handled handler handshake has have
header headers helm hook hooks host hostnames http https hyphen hyphens i i/o identical identifier identify identity
if illegal immediately immutable impersonating impersonation implement implemented import imported improper in include
inclusive incompatible incomplete incorrect incorrectly indentation index individual info information informer ingress
init initcontainers initial initialize initialized initially inprogress input inside inspected install installation
installed installing instances instantiate instead integer interface internal interrupted into invalid ip ips ipv4
ipv6 is isn't it item items iterate iteration its job jobs json jsonpath key keys kind kinds know known kubelet
kubernetes label labels large larger last later latest leading leaked lease leases least length less letters level
like limit limited limitrange limits line list listen lister lists live load loading locate locked logs long longer
look looked looking lookup lower lower-case lowercase managed manager manifest manifests many map mapping mappings
marked marshal marshalling match matching max maximum may media meet memory merge merged message meta metadata method
might min minimum minutes mirror mismatch mismatched missing mixed mode models modified modify more most mount mounted
mounts move moved multiple must mutable mutually name named names namespace namespaces needed needs negative neither
nested network networks new no node nodes non non-absolute non-boolean non-empty non-negative non-nil non-null
non-resource non-string none nonexistent nor not notation note nothing now number numeric obj object object's objects
occurred occurring of offset old omitted on once one only open openapi operation operations operator operators option
options or order original other others otherwise our out output outside over overflow owner ownership packet pair
pairs panic panicked parameter parent parse parsed parsing part parts passed patch path paths pattern peer pending per
percent perform permission permitted persistent pipe plain please plugin pod pod's pods pointer policy port ports
positive possible precondition prefix present previous previously printable priority priorityclass privileged problem
process progress properly proposed proto protocol provide provided providing proxy prune pvc qualified quantities
quantity query querying quota quotas quote quoted range rate rbac re-use reachable reached read read-only
reading ready reason rebuild received recognized recommended record recreate recreated ref reference
referenced references referencing
refresh refused regex regexp register registered registry regular rejected release releases reload remote remove
removed removing rendered repairing replica replicas replicaset repo repository request request's requested requests
required requirement requirements requires reserved reset resolution resolve resource resourcequota resources response
rest restore restricted result resulted retries retrieve retry retrying return returned revision revisions rollback
rolled rolling root rule rules run running runtime runtimeclass same scalar schedule scheduled schema schemas scheme
scope scopes seconds secret secrets see segment segments select selector selectors semantic send sent separated
sequence serialization serializer serve server servers service serviceaccount services set shall share short should
shut sign signature signed signer similar since single size skip slash slashes slice slow snapshot some source spec
specifications specified specify standard start starting state statefulset statement static status still stopped
storage storageclass store stored strategy stream streaming strict string strings struct structural subdomain
subresource subresources subset succeeded successfully such suffix suitable support supported surprising sync syntax
sysctl system tab tag tags taint take taken target tcp template temporary terminal terminated terminating terms than
that the their them then there these they this those three time timed timeout times tls to token tokens toleration
tolerations tombstone too trailing transient transport try twice two type typed types udp uid unable unauthorized
unavailable unclosed undeclared undefined under underscore unescaped unexpected unexpectedly unfinished uninstall
uninstalled unique unit unknown unmarshal unmarshaling unmarshalling unmatched unreachable unrecognized unset
unstructured unsupported unterminated until up update updated updates updating upgrade upgraded upgrading uppercase
uri url urls usage use used useful user using utf-8 valid validate validating validation validations value values
variable verbs verified verify version versioned versions via view volume volumes wait waiting warning warnings was
watch webhook were when which while whitespace whose widely wildcard will with within without words would write
write-only writer wrong x-kubernetes-preserve-unknown-fields x509 yaml yet you zone
"""
WORDS: Final = frozenset(_TEXT.split())
