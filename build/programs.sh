#!/bin/sh
# What travels in the modules of the programs in bin/programs beside these: charts, and what is applied.
set -eu
to=bin/programs

# take MODULE-DIRECTORY MODULE PATH NAME
take() {
	from=$("$GO" list -C "$1" -m -f '{{.Dir}}' "$2")
	rm -rf "${to:?}/$4"
	mkdir -p "$(dirname "$to/$4")"
	cp -r "$from/$3" "$to/$4"
	chmod -R u+w "$to/$4" # modules are read-only
}

take test/programs/certmanager github.com/cert-manager/cert-manager deploy/charts/cert-manager charts/cert-manager
take test/programs/prometheusoperator github.com/prometheus-operator/prometheus-operator example prometheus-operator.d
take test/programs/kyverno github.com/kyverno/kyverno config kyverno.d
take test/programs/awscloud k8s.io/cloud-provider-aws examples/existing-cluster/base aws.d
take test/programs/csi github.com/kubernetes-csi/external-provisioner/v6 deploy/kubernetes/rbac.yaml csi.d/provisioner.yaml
take test/programs/csi github.com/kubernetes-csi/external-attacher/v4 deploy/kubernetes/rbac.yaml csi.d/attacher.yaml
take test/programs/csi github.com/kubernetes-csi/external-resizer/v2 deploy/kubernetes/rbac.yaml csi.d/resizer.yaml
take test/programs/csi github.com/kubernetes-csi/external-snapshotter/v8 deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml csi.d/snapshotter.yaml
take test/programs/csi github.com/kubernetes-csi/external-snapshotter/v8 deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml csi.d/snapshot-controller.yaml
take test/programs/csi github.com/kubernetes-csi/external-snapshotter/client/v8 config/crd csi.d/snapshots
take test/programs sigs.k8s.io/metrics-server manifests metrics-server.d
