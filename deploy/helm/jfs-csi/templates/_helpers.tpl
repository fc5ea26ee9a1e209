{{/* The name of all objects. */}}
{{- define "jfs-csi.name" -}}
{{- .Values.nameOverride | default "jfs-csi" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The selector of pods; never changes. Takes a dict of root and component. */}}
{{- define "jfs-csi.selector" -}}
app.kubernetes.io/name: {{ include "jfs-csi.name" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of objects that belong to no component. */}}
{{- define "jfs-csi.labels" -}}
app.kubernetes.io/name: {{ include "jfs-csi.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "jfs-csi.image" -}}
{{ include "jfs-csi.reference" (merge (dict "tag" (.Values.image.tag | default .Chart.AppVersion)) .Values.image) }}
{{- end -}}

{{/* The reference of an image, by digest if it has one. Takes an image of the values. */}}
{{- define "jfs-csi.reference" -}}
{{ .repository }}{{ if get . "digest" }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end -}}

{{/* The path of the socket on the host. */}}
{{- define "jfs-csi.socketDir" -}}
{{ .Values.kubeletDir }}/plugins/{{ .Values.driverName }}
{{- end -}}

{{/* The driver's arguments that relax its policy. */}}
{{- define "jfs-csi.allowed" -}}
{{- with .Values.allow -}}
{{- if .localStorage }}
- --allow-local-storage={{ .localStorage }}
{{- end }}
{{- if .filesSecret }}
- --allow-files-below=/etc/jfs-csi/files
{{- end }}
{{- if .instanceCredentials }}
- --allow-instance-credentials
{{- end }}
{{- if .linkLocal }}
- --allow-link-local
{{- end }}
{{- if .loopback }}
- --allow-loopback
{{- end }}
{{- if .inlineVolumes }}
- --allow-inline-volumes
{{- end }}
{{- with .mountOptions }}
- --allow-mount-options={{ join "," . }}
{{- end }}
{{- with .inlineOptions }}
- --allow-inline-options={{ join "," . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The volumeMounts and volumes that those arguments need. */}}
{{- define "jfs-csi.allowedMounts" -}}
{{- with .Values.allow.localStorage }}
- name: local-storage
  mountPath: {{ . }}
{{- end }}
{{- if .Values.allow.filesSecret }}
- name: files
  mountPath: /etc/jfs-csi/files
  readOnly: true
{{- end }}
{{- end -}}

{{- define "jfs-csi.allowedVolumes" -}}
{{- with .Values.allow.localStorage }}
- name: local-storage
  hostPath:
    path: {{ . }}
    type: DirectoryOrCreate
{{- end }}
{{- with .Values.allow.filesSecret }}
- name: files
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}

{{/* How nodes get a new version. With the network of the host, two pods would use the same ports. */}}
{{- define "jfs-csi.nodeStrategy" -}}
{{- if .Values.node.updateStrategy -}}
{{ toYaml .Values.node.updateStrategy }}
{{- else if not .Values.keeper.enabled -}}
type: OnDelete
{{- else if or .Values.node.hostNetwork .Values.node.registrar.enabled -}}
type: RollingUpdate
rollingUpdate:
  maxUnavailable: 1
{{- else -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 1
  maxUnavailable: 0
{{- end -}}
{{- end -}}

{{- define "jfs-csi.scraped" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .Values.metrics.port | quote }}
{{- end -}}

{{/* The security context of sidecars and the controller. */}}
{{- define "jfs-csi.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* A sidecar of the controller. Takes a dict of name, values, port and args. */}}
{{- define "jfs-csi.sidecar" -}}
- name: csi-{{ .name }}
  image: {{ include "jfs-csi.reference" .values.image }}
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
    {{- include "jfs-csi.tokenMount" . | nindent 4 }}
{{- end -}}

{{/* Mounts the service account of a container that uses the Kubernetes API. */}}
{{- define "jfs-csi.tokenMount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}
