{{/* What the schema cannot say: values that must or must not go together. All mistakes are told at once. */}}
{{- define "redlockd.validate" -}}
{{- $mistakes := list }}
{{- $access := .Values.access }}
{{- $tls := .Values.tls }}
{{- $external := .Values.masters.external }}
{{- $bundled := .Values.masters.bundled }}

{{- $keys := or $access.keysSecret $access.keys }}
{{- $accounts := $access.serviceAccounts }}
{{- $pods := $accounts.namespaces }}
{{- if not (or $keys $pods $access.mtls $access.insecure) }}
{{- $mistakes = append $mistakes "access: who may call? Say one of these: access.keysSecret (or access.keys): callers show a key; access.serviceAccounts.namespaces: pods show a token of their service account; access.mtls: true with tls: callers show a certificate; access.insecure: true: anybody who reaches the port may take and inspect every lock" }}
{{- end }}
{{- if and $access.insecure (or $keys $pods $access.mtls) }}
{{- $mistakes = append $mistakes "access.insecure: it goes with neither access.keysSecret, access.keys, access.serviceAccounts nor access.mtls" }}
{{- end }}
{{- if and $access.keysSecret $pods }}
{{- $mistakes = append $mistakes "access.serviceAccounts: the chart writes it into a keys file of its own, with access.keys. With access.keysSecret, add issuers to your file (docs/how-to/secure.md) and their public keys to access.jwks.configMap" }}
{{- end }}
{{- if and $pods (not $accounts.issuer) }}
{{- $mistakes = append $mistakes "access.serviceAccounts.issuer: it is required; kubectl get --raw /.well-known/openid-configuration shows it as issuer" }}
{{- end }}
{{- if and $accounts.issuer (not $pods) }}
{{- $mistakes = append $mistakes "access.serviceAccounts.namespaces: it is empty, so that no pod may call; name at least one namespace" }}
{{- end }}
{{- range $namespace, $one := $pods }}
{{- range $i, $prefix := $one.prefixes }}
{{- $where := printf "access.serviceAccounts.namespaces.%s.prefixes[%d]" $namespace $i }}
{{- if regexMatch "[\\x00-\\x1f\\x7f-\\x{9f}]" $prefix }}
{{- $mistakes = append $mistakes (printf "%s: it must not have control characters" $where) }}
{{- else if not (regexMatch (include "redlockd.prefixPattern" $) $prefix) }}
{{- $mistakes = append $mistakes (printf "%s: %s must have each claim in braces, with a slash behind it, as in {kubernetes.io/namespace}/, and no other brace" $where $prefix) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $access.jwks.configMap (not $pods) (not $access.keysSecret) }}
{{- $mistakes = append $mistakes "access.jwks.configMap: it is for access.serviceAccounts, or for a keys file with issuers in access.keysSecret" }}
{{- end }}
{{- if and $access.keysSecret $access.keys }}
{{- $mistakes = append $mistakes "access: keysSecret or keys, not both" }}
{{- end }}
{{- if and $access.mtls (not $tls.enabled) }}
{{- $mistakes = append $mistakes "access.mtls: it needs tls.enabled: true" }}
{{- end }}
{{- if and $access.mtls (not (or $tls.clientCaSecret $tls.clientCa)) }}
{{- $mistakes = append $mistakes "access.mtls: it needs tls.clientCaSecret or tls.clientCa" }}
{{- end }}
{{- if and (or $tls.clientCaSecret $tls.clientCa) (not $access.mtls) }}
{{- $mistakes = append $mistakes "tls.clientCa: it needs access.mtls: true" }}
{{- end }}
{{- if and $tls.clientCaSecret $tls.clientCa }}
{{- $mistakes = append $mistakes "tls: clientCaSecret or clientCa, not both" }}
{{- end }}
{{- if and $tls.enabled (not $tls.secret) (not (and $tls.certificate $tls.key)) }}
{{- $mistakes = append $mistakes "tls.enabled: it needs tls.secret, or tls.certificate and tls.key" }}
{{- end }}
{{- if and $tls.secret (or $tls.certificate $tls.key) }}
{{- $mistakes = append $mistakes "tls: secret, or certificate and key, not both" }}
{{- end }}
{{- if and (not $tls.enabled) (or $tls.secret $tls.certificate $tls.key) }}
{{- $mistakes = append $mistakes "tls: a certificate is given, but tls.enabled is false" }}
{{- end }}

{{- $ways := 0 }}
{{- range list $external.secret $external.addresses $bundled.enabled }}{{ if . }}{{ $ways = add1 $ways }}{{ end }}{{ end }}
{{- if ne (int $ways) 1 }}
{{- $mistakes = append $mistakes (printf "masters: where are they? Say exactly one of masters.external.secret, masters.external.addresses and masters.bundled.enabled: true (%d of them are said)" (int $ways)) }}
{{- end }}
{{- if $bundled.enabled }}
{{- if or (and $bundled.password $bundled.passwordSecret) (not (or $bundled.password $bundled.passwordSecret)) }}
{{- $mistakes = append $mistakes "masters.bundled: it needs password or passwordSecret, and not both" }}
{{- end }}
{{- if or $external.caSecret $external.certificateSecret $external.bootstrap }}
{{- $mistakes = append $mistakes "masters.external: caSecret, certificateSecret and bootstrap are of external masters, but masters.bundled.enabled is true" }}
{{- end }}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-masters" (include "redlockd.fullname" .)) }}
{{- if and $there (ne (int $there.spec.replicas) (int $bundled.count)) }}
{{- $mistakes = append $mistakes (printf "masters.bundled.count: there are %d masters, and another number cannot be had by an upgrade: docs/how-to/replace-a-master.md" (int $there.spec.replicas)) }}
{{- end }}
{{- end }}

{{- if and .Values.networkPolicy.enabled (not $bundled.enabled) (not .Values.networkPolicy.masters) }}
{{- $mistakes = append $mistakes "networkPolicy.masters: with external masters it must say where they are: [{cidr: 10.0.0.0/24, port: 6379}]" }}
{{- end }}
{{- $shown := or .Values.serviceMonitor.tlsConfig.cert (and $keys .Values.serviceMonitor.keySecret) }}
{{- if and .Values.serviceMonitor.enabled (not $access.insecure) (not $shown) }}
{{- $mistakes = append $mistakes "serviceMonitor: /metrics takes a key of access.keys or access.keysSecret, serviceMonitor.keySecret: {name: SECRET, key: MEMBER}, or with access.mtls a certificate, serviceMonitor.tlsConfig.cert and keySecret" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- $mistakes = append $mistakes "autoscaling: minReplicas is more than maxReplicas" }}
{{- end }}
{{- if $mistakes }}
{{- fail (printf "\n\nThe values of redlockd will not do:\n  - %s\n" (join "\n  - " $mistakes)) }}
{{- end }}
{{- end }}

{{/* A prefix of redlockd: no brace but around the name of a claim, whose parts are separated by slashes and have %2F and %25 for a slash and a percent
     sign. */}}
{{- define "redlockd.prefixPattern" -}}
{{- $part := "(?:[^{}/%]|%2F|%25)+" -}}
{{- printf `^(?:[^{}]|\{%s(?:/%s)*\}/)*$` $part $part -}}
{{- end }}
