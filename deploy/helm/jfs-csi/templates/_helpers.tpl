{{/* Name of all objects. */}}
{{- define "jfs-csi.name" -}}
{{- .Values.nameOverride | default "jfs-csi" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* What pods are selected by; never changes. Takes a dict of root and component. */}}
{{- define "jfs-csi.selector" -}}
app.kubernetes.io/name: {{ include "jfs-csi.name" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object that belongs to no component. */}}
{{- define "jfs-csi.labels" -}}
app.kubernetes.io/name: {{ include "jfs-csi.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "jfs-csi.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Where kubelet finds the socket. */}}
{{- define "jfs-csi.socketDir" -}}
{{ .Values.kubeletDir }}/plugins/{{ .Values.driverName }}
{{- end -}}

{{- define "jfs-csi.scraped" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.metrics.port | quote }}
{{- end -}}

{{/* What no sidecar and no controller needs. */}}
{{- define "jfs-csi.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* A sidecar of the controller. Takes a dict of name, values, port and args. */}}
{{- define "jfs-csi.sidecar" -}}
- name: csi-{{ .name }}
  image: {{ .values.image.repository }}:{{ .values.image.tag }}
  imagePullPolicy: {{ .values.image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    {{- range concat .args .values.extraArgs }}
    - {{ . | quote }}
    {{- end }}
    - --http-endpoint=:{{ .port }}
  ports:
    - name: {{ .name }}
      containerPort: {{ .port }}
  livenessProbe:
    httpGet:
      path: /healthz/leader-election
      port: {{ .name }}
    initialDelaySeconds: 10
    periodSeconds: 20
    timeoutSeconds: 10
  resources:
    {{- toYaml .values.resources | nindent 4 }}
  securityContext:
    {{- include "jfs-csi.confined" . | nindent 4 }}
  volumeMounts:
    - name: socket
      mountPath: /csi
{{- end -}}
