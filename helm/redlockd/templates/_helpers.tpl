{{- define "redlockd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* At most 40 characters: what is put behind it must still be the name of a pod. */}}
{{- define "redlockd.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Of a part (server, masters, bootstrap, test): call with (list . "server"). */}}
{{- define "redlockd.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "redlockd.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "redlockd.labels" -}}
{{- $ := index . 0 -}}
{{ include "redlockd.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
app.kubernetes.io/part-of: redlockd
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "redlockd.serviceAccount" -}}
{{- $own := ternary (include "redlockd.fullname" .) "default" .Values.serviceAccount.create }}
{{- default $own .Values.serviceAccount.name }}
{{- end }}

{{- define "redlockd.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{/* ---- names of Secrets: of those that are there, or of the chart's own ---- */}}
{{- define "redlockd.keysSecret" -}}
{{- $own := or .Values.access.keys .Values.access.serviceAccounts.namespaces }}
{{- if .Values.access.keysSecret }}{{ .Values.access.keysSecret }}{{ else if $own }}{{ include "redlockd.fullname" . }}-keys{{ end }}
{{- end }}
{{- define "redlockd.tlsSecret" -}}{{ .Values.tls.secret | default (printf "%s-tls" (include "redlockd.fullname" .)) }}{{- end }}
{{- define "redlockd.clientCaSecret" -}}{{ .Values.tls.clientCaSecret | default (printf "%s-client-ca" (include "redlockd.fullname" .)) }}{{- end }}
{{- define "redlockd.mastersSecret" -}}{{ .Values.masters.external.secret | default (printf "%s-masters" (include "redlockd.fullname" .)) }}{{- end }}
{{- define "redlockd.passwordSecret" -}}
{{ .Values.masters.bundled.passwordSecret | default (printf "%s-masters-password" (include "redlockd.fullname" .)) }}{{- end }}

{{/* The ConfigMap with the public keys of issuers, or nothing. */}}
{{- define "redlockd.jwksConfigMap" -}}
{{- $own := ternary (printf "%s-jwks" (include "redlockd.fullname" .)) "" (not (empty .Values.access.serviceAccounts.namespaces)) }}
{{- default $own .Values.access.jwks.configMap }}
{{- end }}

{{/* The keys file. The first rule that matches counts, so "*" comes last. */}}
{{- define "redlockd.keysFile" -}}
{{- $accounts := .Values.access.serviceAccounts -}}
{{- $callers := list -}}
{{- range $namespace := append (without (keys $accounts.namespaces | sortAlpha) "*") "*" -}}
{{- with get $accounts.namespaces $namespace -}}
{{- $callers = append $callers (merge (dict "match" (dict "sub" (printf "system:serviceaccount:%s:*" $namespace)) "name" "{sub}") .) -}}
{{- end -}}
{{- end -}}
{{- $file := dict -}}
{{- with .Values.access.keys }}{{ $_ := set $file "keys" . }}{{ end -}}
{{- if $callers -}}
{{- $issuer := dict "issuer" $accounts.issuer "audience" $accounts.audience "jwks_file" "/etc/redlockd/jwks/kubernetes.json" "callers" $callers -}}
{{- $_ := set $file "issuers" (list $issuer) -}}
{{- end -}}
{{ toJson $file }}
{{- end }}

{{- define "redlockd.scheme" -}}{{ ternary "https" "http" .Values.tls.enabled }}{{- end }}
{{- define "redlockd.url" -}}
{{ include "redlockd.scheme" . }}://{{ include "redlockd.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
{{- end }}

{{/* ---- times ---- */}}
{{/* Of 500ms, 60s, 5m, 1h or a number of milliseconds, as redlockd takes them. */}}
{{- define "redlockd.milliseconds" -}}
{{- $text := include "redlockd.optionText" . -}}
{{- mul (regexFind "^[0-9]+" $text) (get (dict "" 1 "ms" 1 "s" 1000 "m" 60000 "h" 3600000) (regexFind "[a-z]*$" $text)) -}}
{{- end }}
{{/* How long a master that was restarted does not vote (docs/explanation/safety.md: the longest lease, its drift and 2 s), 10 s for redlockd to find it, and a third of the
     longest lease: until then each lease that is renewed was extended once more, and has the vote of this master again (repair). */}}
{{- define "redlockd.barSeconds" -}}
{{- $ttl := include "redlockd.milliseconds" (.Values.options.max_ttl_ms | default 60000) | float64 -}}
{{- $drift := .Values.options.drift_factor | default 0.01 | float64 -}}
{{- addf (divf (mulf $ttl (addf 1 $drift (divf 1 3))) 1000) 12 | ceil | int64 }}
{{- end }}
{{- define "redlockd.preStopSeconds" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}5{{ else }}0{{ end }}
{{- end }}
{{- define "redlockd.graceSeconds" -}}
{{- $drain := include "redlockd.milliseconds" (ternary .Values.options.drain_ms 10000 (hasKey .Values.options "drain_ms")) | float64 -}}
{{- addf (divf $drain 1000) (include "redlockd.preStopSeconds" . | float64) 5 | ceil | int64 }}
{{- end }}

{{/* ---- the container ---- */}}
{{/* A number of a values file is a float: 31536000000 would be written 3.1536e+10. */}}
{{- define "redlockd.optionText" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . }}{{ end }}
{{- end }}

{{/* What every redlockd of this chart is told, wherever it listens. */}}
{{- define "redlockd.commonArgs" -}}
{{- $external := .Values.masters.external }}
{{- if not .Values.masters.bundled.enabled }}
- --masters-file=/etc/redlockd/masters/masters
{{- end }}
{{- if $external.caSecret }}
- --masters-ca=/etc/redlockd/masters-ca/ca.crt
{{- end }}
{{- if $external.certificateSecret }}
- --masters-cert=/etc/redlockd/masters-cert/tls.crt
- --masters-key=/etc/redlockd/masters-cert/tls.key
{{- end }}
{{- range $name, $value := .Values.options }}
- {{ printf "--%s=%s" ($name | replace "_" "-") (include "redlockd.optionText" $value) | quote }}
{{- end }}
{{- end }}

{{/* The password is expanded by the kubelet, so that it stands in the Secret alone. */}}
{{- define "redlockd.env" -}}
{{- if .Values.masters.bundled.enabled }}
{{- $masters := printf "%s-masters" (include "redlockd.fullname" .) }}
{{- $addresses := list }}
{{- range $i := until (int .Values.masters.bundled.count) }}
{{- $addresses = append $addresses (printf "redis://:$(MASTERS_PASSWORD)@%s-%d.%s.%s.svc:6379" $masters $i $masters $.Release.Namespace) }}
{{- end }}
env:
  - name: MASTERS_PASSWORD
    valueFrom:
      secretKeyRef: {name: {{ include "redlockd.passwordSecret" . }}, key: password}
  - name: REDLOCKD_MASTERS
    value: {{ join "," $addresses | quote }}
{{- end }}
{{- end }}

{{/* Volumes: (list . true) with what the server needs, (list . false) with what any redlockd needs to reach the masters.
     0440, since redlockd refuses Secrets that others may read; fsGroup makes the group its own. */}}
{{- define "redlockd.secretVolumes" -}}
{{- $ := index . 0 -}}
{{- $volumes := dict -}}
{{- if not $.Values.masters.bundled.enabled }}{{ $_ := set $volumes "masters" (include "redlockd.mastersSecret" $) }}{{ end -}}
{{- with $.Values.masters.external.caSecret }}{{ $_ := set $volumes "masters-ca" . }}{{ end -}}
{{- with $.Values.masters.external.certificateSecret }}{{ $_ := set $volumes "masters-cert" . }}{{ end -}}
{{- if index . 1 -}}
{{- with include "redlockd.keysSecret" $ }}{{ $_ := set $volumes "keys" . }}{{ end -}}
{{- if $.Values.tls.enabled }}{{ $_ := set $volumes "tls" (include "redlockd.tlsSecret" $) }}{{ end -}}
{{- if $.Values.access.mtls }}{{ $_ := set $volumes "client-ca" (include "redlockd.clientCaSecret" $) }}{{ end -}}
{{- end -}}
{{ toJson $volumes }}
{{- end }}

{{- define "redlockd.volumeMounts" -}}
{{- $secrets := include "redlockd.secretVolumes" . | fromJson -}}
{{- $jwks := and (index . 1) (include "redlockd.jwksConfigMap" (index . 0)) -}}
{{- if or $secrets $jwks }}
volumeMounts:
{{- range $name, $_ := $secrets }}
  - {name: {{ $name }}, mountPath: /etc/redlockd/{{ $name }}, readOnly: true}
{{- end }}
{{- if $jwks }}
  - {name: jwks, mountPath: /etc/redlockd/jwks, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "redlockd.volumes" -}}
{{- $secrets := include "redlockd.secretVolumes" . | fromJson -}}
{{- $jwks := and (index . 1) (include "redlockd.jwksConfigMap" (index . 0)) -}}
{{- if or $secrets $jwks }}
volumes:
{{- range $name, $secret := $secrets }}
  - name: {{ $name }}
    secret: {secretName: {{ $secret }}, defaultMode: 0440}
{{- end }}
{{- if $jwks }}
  - name: jwks
    configMap:
      name: {{ $jwks }}
      {{- if (index . 0).Values.access.serviceAccounts.namespaces }}
      items: [{key: kubernetes.json, path: kubernetes.json}] # until it is there, the pod waits
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "redlockd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 64801
runAsGroup: 64801
fsGroup: 64801
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "redlockd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What pods of redlockd have in common besides their containers. */}}
{{- define "redlockd.podCommon" -}}
serviceAccountName: {{ include "redlockd.serviceAccount" . }}
{{ include "redlockd.podOfAnyAccount" . }}
{{- end }}

{{- define "redlockd.podOfAnyAccount" -}}
automountServiceAccountToken: false
enableServiceLinks: false # redlockd reads variables that begin with REDLOCKD_
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
