package cloud

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud/call"
)

// machines is what a cloud knows of the machines of nodes, whichever interface it has.
type machines interface {
	// all is everything that there is to know; nil: the cloud says nothing of this node.
	all(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error)
	addresses(ctx context.Context, node *corev1.Node) ([]corev1.NodeAddress, error)
	exists(ctx context.Context, node *corev1.Node) (bool, error)
	off(ctx context.Context, node *corev1.Node) (bool, error)
}

// newer is a cloud with today's interface.
type newer struct{ cloudprovider.InstancesV2 }

func (n newer) all(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	m, err := call.Get(ctx, "InstanceMetadata", func(ctx context.Context) (*cloudprovider.InstanceMetadata, error) {
		return n.InstanceMetadata(ctx, node.DeepCopy())
	})
	if err != nil || m == nil || m.ProviderID != "" {
		return m, err
	}
	// Others go by the ID, and it is set only now: without one the node has to wait.
	if node.Spec.ProviderID == "" {
		return nil, fmt.Errorf("cloud provider does not set node provider ID for node %s", node.Name)
	}
	with := *m
	with.ProviderID = node.Spec.ProviderID
	return &with, nil
}

func (n newer) addresses(ctx context.Context, node *corev1.Node) ([]corev1.NodeAddress, error) {
	m, err := call.Get(ctx, "InstanceMetadata", func(ctx context.Context) (*cloudprovider.InstanceMetadata, error) {
		return n.InstanceMetadata(ctx, node.DeepCopy())
	})
	if err != nil || m == nil {
		return nil, err
	}
	return m.NodeAddresses, nil
}

func (n newer) exists(ctx context.Context, node *corev1.Node) (bool, error) {
	return call.Get(ctx, "InstanceExists", func(ctx context.Context) (bool, error) { return n.InstanceExists(ctx, node.DeepCopy()) })
}

func (n newer) off(ctx context.Context, node *corev1.Node) (bool, error) {
	return call.Get(ctx, "InstanceShutdown", func(ctx context.Context) (bool, error) { return n.InstanceShutdown(ctx, node.DeepCopy()) })
}

// older is a cloud with the interface from before: it is asked by provider ID, and by the
// node's name where that fails.
type older struct {
	cloud cloudprovider.Interface
	cloudprovider.Instances
	zones cloudprovider.Zones // nil: it has none
}

func (o older) id(ctx context.Context, node *corev1.Node) (string, error) {
	if node.Spec.ProviderID != "" {
		return node.Spec.ProviderID, nil
	}
	return call.Get(ctx, "InstanceID", func(ctx context.Context) (string, error) {
		return cloudprovider.GetInstanceProviderID(ctx, o.cloud, types.NodeName(node.Name))
	})
}

func (o older) all(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	id, err := o.id(ctx, node)
	if err != nil && !errors.Is(err, cloudprovider.NotImplemented) { // a cloud without IDs goes by names
		return nil, err
	}
	m := &cloudprovider.InstanceMetadata{ProviderID: id}
	if m.NodeAddresses, err = o.addressesOf(ctx, id, node.Name); err != nil {
		return nil, err
	}
	m.InstanceType, err = call.Get(ctx, "InstanceType", func(ctx context.Context) (string, error) {
		kind, byID := o.InstanceTypeByProviderID(ctx, id)
		if byID == nil {
			return kind, nil
		}
		kind, err := o.InstanceType(ctx, types.NodeName(node.Name))
		if err != nil {
			return "", fmt.Errorf("instance type by provider ID: %w, and by node name: %w", byID, err)
		}
		return kind, nil
	})
	if err != nil || o.zones == nil {
		return m, err
	}
	zone, err := call.Get(ctx, "GetZone", func(ctx context.Context) (cloudprovider.Zone, error) {
		zone, byID := o.zones.GetZoneByProviderID(ctx, id)
		if byID == nil {
			return zone, nil
		}
		zone, err := o.zones.GetZoneByNodeName(ctx, types.NodeName(node.Name))
		if err != nil {
			return zone, fmt.Errorf("failed to get zone from cloud provider: by provider ID: %w, and by node name: %w", byID, err)
		}
		return zone, nil
	})
	m.Zone, m.Region = zone.FailureDomain, zone.Region
	return m, err
}

func (o older) addresses(ctx context.Context, node *corev1.Node) ([]corev1.NodeAddress, error) {
	return o.addressesOf(ctx, node.Spec.ProviderID, node.Name)
}

func (o older) addressesOf(ctx context.Context, id, name string) ([]corev1.NodeAddress, error) {
	return call.Get(ctx, "NodeAddresses", func(ctx context.Context) ([]corev1.NodeAddress, error) {
		list, byID := o.NodeAddressesByProviderID(ctx, id)
		if byID == nil {
			return list, nil
		}
		list, err := o.NodeAddresses(ctx, types.NodeName(name))
		if err != nil {
			return nil, fmt.Errorf("error fetching node by provider ID: %w, and error by node name: %w", byID, err)
		}
		return list, nil
	})
}

func (o older) exists(ctx context.Context, node *corev1.Node) (bool, error) {
	id, err := o.id(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return call.Get(ctx, "InstanceExistsByProviderID", func(ctx context.Context) (bool, error) { return o.InstanceExistsByProviderID(ctx, id) })
}

func (o older) off(ctx context.Context, node *corev1.Node) (bool, error) {
	id, err := o.id(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	off, err := call.Get(ctx, "InstanceShutdownByProviderID", func(ctx context.Context) (bool, error) { return o.InstanceShutdownByProviderID(ctx, id) })
	if errors.Is(err, cloudprovider.NotImplemented) {
		return false, nil
	}
	return off, err
}
