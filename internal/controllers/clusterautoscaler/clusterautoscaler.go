// Package clusterautoscaler has a cloud's machines come for pods that fit nowhere, and go when they
// have nothing to do: package nodepool as a controller, by the name of upstream's program.
package clusterautoscaler

import (
	"context"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/nodepool"
	"github.com/kemudi/kemudi/internal/resource"
)

// New returns the controller of a cloud's pools.
func New(cloud scale.Cloud) *controller.Controller {
	return controller.NewCustom(controller.Custom{
		Name:   "cluster-autoscaler",
		Reads:  []*resource.Def{core.Pods.Def, core.Nodes.Def, dra.ResourceClaims.Def, dra.DeviceClasses.Def},
		Writes: []controller.Permission{controller.Update(core.Nodes.Def), controller.Delete(core.Nodes.Def)},
		Run: func(ctx context.Context, k *controller.Kit) error {
			return nodepool.New(nodepool.Options{
				Cloud: cloud, Transport: k.Transport(), Events: k.Events, Metrics: controller.OwnMetrics(k, nodepool.NewMetrics), Logger: k.Logger,
			}).Run(ctx)
		},
	})
}
