package cluster

import (
	"context"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/ingress"
	"github.com/kemudi/kemudi/internal/resource"
)

// IngressFinding is what is to be said of an Ingress.
type IngressFinding = ingress.Finding

// IngressReport says of each Ingress of a cluster what of it would not be obeyed by ours: the cluster of a
// kubeconfig, a file as kubectl prints it with -o yaml or -o json, or a snapshot of its etcd.
func IngressReport(ctx context.Context, from string) ([]IngressFinding, error) {
	kinds := []*resource.Def{networking.Ingresses.Def, networking.IngressClasses.Def, core.Services.Def, core.Secrets.Def}
	read, err := objectsOf(ctx, from, kinds)
	if err != nil {
		return nil, err
	}
	objects := make([]resource.Object, len(read))
	for i, o := range read {
		objects[i] = o.Object
	}
	return ingress.Report(objects), nil
}
