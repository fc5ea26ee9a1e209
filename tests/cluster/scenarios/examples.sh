# Every file of deploy/examples, applied unchanged. The cluster is set up with secret.yaml, storageclass.yaml
# and backend.yaml. Examples that need another install are in other_installs.sh.

the_claim_example_has_two_writers() {
  example dynamic
  kubectl rollout status deployment/writer --timeout=120s >/dev/null
  same "size" "$(kilobytes deployment/writer /data)" 10485760
  until_true "a file of each writer" 60 listed deployment/writer /data 2
}

the_expansion_example_adds_space() {
  example dynamic
  kubectl rollout status deployment/writer --timeout=120s >/dev/null
  kubectl apply -f "$PROJECT/deploy/examples/expand.yaml" >/dev/null
  until_true "20 GiB in the pod" 120 shows deployment/writer /data 20971520
}

the_clone_example_has_the_files_of_its_source() {
  example dynamic
  kubectl rollout status deployment/writer --timeout=120s >/dev/null
  until_true "files of the writers" 60 listed deployment/writer /data 2
  kubectl apply -f "$PROJECT/deploy/examples/expand.yaml" >/dev/null
  example clone
  kubectl wait --for=condition=Ready pod/shared-copy --timeout=120s >/dev/null
  listed pod/shared-copy /data 2 || fail "the copy has: $(kubectl exec shared-copy -- ls /data)"
}

the_static_volume_example_is_mounted() {
  example static
  kubectl wait --for=condition=Ready pod/alpha --timeout=120s >/dev/null
  kubectl exec alpha -- sh -c 'echo x >/data/f && cat /data/f' >/dev/null
}

the_read_only_example_is_read_by_three_pods() {
  example read-only
  kubectl rollout status deployment/reader --timeout=120s >/dev/null
  if kubectl exec deployment/reader -- touch /datasets/f; then fail "a reader writes"; fi
}

the_single_pod_example_writes_with_its_group() {
  example single-pod
  kubectl wait --for=condition=Ready pod/exclusive --timeout=120s >/dev/null
  same "the group of the file" "$(kubectl exec exclusive -- stat -c %g /data/mine)" 2000
}

the_path_pattern_example_names_directories_after_claims() {
  example storageclass-path-pattern
  ns=default until_true "the claim" 60 bound models
  class_pod juicefs-by-name
}

the_mount_options_example_is_mounted_with_them() {
  example storageclass-mount-options
  class_pod juicefs-tuned
}

the_tikv_secret_example_is_accepted() {
  kubectl apply --dry-run=server -f "$PROJECT/deploy/examples/secret-tikv.yaml" >/dev/null
}
