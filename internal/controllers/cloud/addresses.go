package cloud

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"
)

// setAddresses writes the addresses of a node as the cloud has them; none say nothing.
func (r *nodes) setAddresses(ctx context.Context, node *corev1.Node, addresses []corev1.NodeAddress) error {
	if len(addresses) == 0 {
		return nil
	}
	if err := believableAddresses(addresses); err != nil {
		return fmt.Errorf("what the cloud says of node %s cannot be: %w; it keeps the addresses that it has", node.Name, err)
	}
	if !slices.ContainsFunc(addresses, isHostName) { // the node itself knows it
		addresses = slices.Clone(addresses)
		for _, a := range node.Status.Addresses {
			if isHostName(a) {
				addresses = append(addresses, a)
			}
		}
	}
	want, err := preferred(node, addresses)
	if err != nil {
		return err
	}
	if sameAddresses(node.Status.Addresses, want) {
		return nil
	}
	_, err = r.nodes.MergePatch(ctx, node, "status", map[string]any{"status": map[string]any{"addresses": want}})
	return err
}

func isHostName(a corev1.NodeAddress) bool { return a.Type == corev1.NodeHostName }

// sameAddresses says that nothing of it needs to be written: the order of addresses of one
// type means something.
func sameAddresses(a, b []corev1.NodeAddress) bool { return slices.Equal(a, b) }

// believableAddresses says which of the addresses cannot be one.
func believableAddresses(addresses []corev1.NodeAddress) error {
	for i, a := range addresses {
		if slices.Contains(addresses[:i], a) {
			return fmt.Errorf("address %s %s stands there twice", a.Type, a.Address)
		}
		switch a.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
			if _, err := netip.ParseAddr(a.Address); err != nil {
				return fmt.Errorf("address %s %q: %w", a.Type, a.Address, err)
			}
		case corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS:
			if a.Address == "" {
				return fmt.Errorf("address %s is empty", a.Type)
			}
		default:
			return fmt.Errorf("there is no type %q of addresses", a.Type)
		}
	}
	return nil
}

// preferred are the addresses with those first that the node was told to have (--node-ip): of
// their types there is no other then. Each of them must be among those of the cloud.
func preferred(node *corev1.Node, addresses []corev1.NodeAddress) ([]corev1.NodeAddress, error) {
	said, ok := node.Annotations[cloudapi.AnnotationAlphaProvidedIPAddr]
	if !ok {
		return addresses, nil
	}
	var out []corev1.NodeAddress
	types := map[corev1.NodeAddressType]bool{}
	for text := range strings.SplitSeq(said, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("failed to parse node IP %q: %w", said, err)
		}
		matched := false
		for _, a := range addresses {
			if has, err := netip.ParseAddr(a.Address); err == nil && has.Unmap() == ip.Unmap() {
				out, types[a.Type], matched = append(out, a), true, true
			}
		}
		if !matched {
			return nil, fmt.Errorf("failed to get node address from cloud provider that matches ip: %s", ip)
		}
	}
	for _, a := range addresses {
		if !types[a.Type] {
			out = append(out, a)
		}
	}
	return out, nil
}
