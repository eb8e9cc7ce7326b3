{{/*
redlockd.sidecar: a sidecar container (an init container with restartPolicy: Always) that runs redlockd for its pod alone. What includes it starts
after redlockd answers and ends before it.

  initContainers:
    {{- include "redlockd.sidecar" (dict "root" . "sidecar" .Values.redlockd) | nindent 8 }}
  volumes:
    {{- include "redlockd.sidecar.volumes" (dict "root" . "sidecar" .Values.redlockd) | nindent 8 }}

Members of "sidecar":
  mastersSecret   a Secret with the addresses of the masters as `masters`: one line, separated by commas (required)
  mastersCaSecret for rediss://: a Secret that has the authorities of the masters' certificates as ca.crt
  socket          true: at the Unix socket /run/redlockd/http.sock, in the volume redlockd-socket; else at 127.0.0.1, port
  port            8080
  image           redlockd:{version}
  imagePullPolicy IfNotPresent
  options         other options of redlockd (docs/reference/configuration.md), with underscores: {max_ttl_ms: 120000}
  resources       of the container

Every pod has a redlockd of its own then, and all of them share the masters. No keys: loopback and the socket are the pod's own.
A socket is for redlockd's user and group, so the pod needs an fsGroup: it becomes the socket's group, and every container is in it.
*/}}
{{- define "redlockd.sidecar" -}}
{{- include "redlockd.sidecar.validate" . -}}
{{- $s := .sidecar -}}
{{- $listen := ternary "unix:/run/redlockd/http.sock" (printf "127.0.0.1:%d" (int ($s.port | default 8080))) (eq true $s.socket) -}}
{{- $server := ternary $listen (printf "http://%s" $listen) (eq true $s.socket) -}}
- name: redlockd
  image: {{ $s.image | default "redlockd:0.1.0" | quote }}
  imagePullPolicy: {{ $s.imagePullPolicy | default "IfNotPresent" }}
  restartPolicy: Always
  args:
    - --listen={{ $listen }}
    {{- if $s.mastersCaSecret }}
    - --masters-ca=/etc/redlockd/masters-ca/ca.crt
    {{- end }}
    {{- range $name, $value := $s.options }}
    - {{ printf "--%s=%s" ($name | replace "_" "-") (include "redlockd.sidecar.text" $value) | quote }}
    {{- end }}
  env:
    - name: REDLOCKD_MASTERS
      valueFrom:
        secretKeyRef: {name: {{ $s.mastersSecret }}, key: masters}
  # What comes after it in the pod waits for this: until redlockd answers, not until the masters are there (that is --ready).
  startupProbe:
    exec: {command: [/usr/bin/redlockctl, health, --server, {{ $server | quote }}]}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 60
  livenessProbe:
    exec: {command: [/usr/bin/redlockctl, health, --server, {{ $server | quote }}]}
    periodSeconds: 20
    timeoutSeconds: 10
  resources: {{- toYaml ($s.resources | default (dict "requests" (dict "cpu" "20m" "memory" "32Mi") "limits" (dict "memory" "128Mi"))) | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 64801
    runAsGroup: 64801
    seccompProfile: {type: RuntimeDefault}
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  {{- if or $s.socket $s.mastersCaSecret }}
  volumeMounts:
    {{- with include "redlockd.sidecar.mount" . }}{{ . | nindent 4 }}{{ end }}
    {{- if $s.mastersCaSecret }}
    - {name: redlockd-masters-ca, mountPath: /etc/redlockd/masters-ca, readOnly: true}
    {{- end }}
  {{- end }}
{{- end }}

{{/* redlockd.sidecar.mount: for the container that calls, where there is a socket; else nothing. */}}
{{- define "redlockd.sidecar.mount" -}}
{{- if .sidecar.socket -}}
- {name: redlockd-socket, mountPath: /run/redlockd}
{{- end }}
{{- end }}

{{/* redlockd.sidecar.volumes: what the pod needs for it; nothing without a socket and mastersCaSecret. */}}
{{- define "redlockd.sidecar.volumes" -}}
{{- if .sidecar.socket }}
- name: redlockd-socket
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
{{- if .sidecar.mastersCaSecret }}
- name: redlockd-masters-ca
  secret: {secretName: {{ .sidecar.mastersCaSecret }}}
{{- end }}
{{- end }}

{{/* A number of a values file is a float: 31536000000 would be written 3.1536e+10. */}}
{{- define "redlockd.sidecar.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . }}{{ end }}
{{- end }}

{{- define "redlockd.sidecar.validate" -}}
{{- if not (and (kindIs "map" .) .sidecar) }}{{ fail "redlockd.sidecar: call it with (dict \"root\" . \"sidecar\" .Values.redlockd)" }}{{ end }}
{{- $known := list "mastersSecret" "mastersCaSecret" "socket" "port" "image" "imagePullPolicy" "options" "resources" }}
{{- $own := list "listen" "masters" "masters_file" "masters_ca" "bootstrap" "dev" "config" "restart_guard" "insecure" }}
{{- range $name, $_ := .sidecar }}
{{- if not (has $name $known) }}{{ fail (printf "redlockd.sidecar: %s is not known; known are %s" $name (join ", " $known)) }}{{ end }}
{{- end }}
{{- if not .sidecar.mastersSecret }}{{ fail "redlockd.sidecar: mastersSecret is missing: a Secret with the addresses of the masters as masters" }}{{ end }}
{{- if and .sidecar.socket .sidecar.port }}{{ fail "redlockd.sidecar: socket or port, not both" }}{{ end }}
{{- range $name, $_ := .sidecar.options }}
{{- if has $name $own }}{{ fail (printf "redlockd.sidecar: options.%s is not for a sidecar" $name) }}{{ end }}
{{- end }}
{{- end }}
