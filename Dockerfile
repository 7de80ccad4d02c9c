# The operator with helm, kubectl, bash and jq for hooks. Modules and global hooks are added by images made from this one.

FROM golang:1.26 AS tools
WORKDIR /src/tools
COPY tools/go.mod tools/go.sum ./
RUN go build -trimpath \
    -ldflags='-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X helm.sh/helm/v3/internal/version.version=v3.21.4' \
    -o /out/ helm.sh/helm/v3/cmd/helm k8s.io/kubernetes/cmd/kubectl

FROM python:3.13-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends bash ca-certificates jq tini \
    && rm -rf /var/lib/apt/lists/*
COPY --from=tools /out/helm /out/kubectl /usr/local/bin/
WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY addon_operator addon_operator
RUN pip install --no-cache-dir --no-deps . \
    && shell=$(dirname "$(addon-operator shell-lib)") && mkdir -p /frameworks /framework \
    && cp -r "$shell" /frameworks/shell && cp -r "$shell" /framework/shell \
    && mkdir -p /modules /global-hooks /var/run/addon-operator \
    && chown 65532:65532 /var/run/addon-operator
COPY image/shell_lib.sh /shell_lib.sh
WORKDIR /
USER 65532:65532
ENV MODULES_DIR=/modules \
    GLOBAL_HOOKS_DIR=/global-hooks \
    HELM_BIN_PATH=/usr/local/bin/helm
EXPOSE 9650
ENTRYPOINT ["/usr/bin/tini", "--", "addon-operator"]
CMD ["start"]
