{{/*
redlockd.token: for a pod without redlockd of its own that calls the service of the chart redlockd, with access.serviceAccounts there. The kubelet puts a
token of the pod's service account into a file, and renews it long before it ends: read the file for each request, as redlockctl (REDLOCKCTL_KEY_FILE) and
the libraries (token_file) do. Nothing is restarted.

  containers:
    - env:
        {{- include "redlockd.token.env" . | nindent 8 }}
      volumeMounts:
        {{- include "redlockd.token.mount" . | nindent 8 }}
  volumes:
    {{- include "redlockd.token.volume" (dict "audience" "redlockd") | nindent 4 }}

audience: as access.serviceAccounts.audience of the service.
*/}}
{{- define "redlockd.token.volume" -}}
{{- if not (and (kindIs "map" .) (kindIs "string" .audience) .audience) }}{{ fail "redlockd.token.volume: call it with (dict \"audience\" \"redlockd\")" }}{{ end -}}
- name: redlockd-token
  projected:
    sources:
      - serviceAccountToken: {audience: {{ .audience | quote }}, expirationSeconds: 600, path: token}
{{- end }}

{{- define "redlockd.token.mount" -}}
- {name: redlockd-token, mountPath: /var/run/secrets/redlockd, readOnly: true}
{{- end }}

{{- define "redlockd.token.env" -}}
- {name: REDLOCKCTL_KEY_FILE, value: /var/run/secrets/redlockd/token}
{{- end }}
