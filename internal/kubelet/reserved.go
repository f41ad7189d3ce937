package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// reservedPIDs is what processes and threads are called there.
const reservedPIDs v1.ResourceName = "pid"

// Reserved is how much of some resources is not for pods. It is the value of a flag:
// cpu=100m,memory=1Gi.
type Reserved v1.ResourceList

// Type is for the flag's help.
func (r *Reserved) Type() string { return "resource=quantity,..." }

// String is the list as the flag takes it.
func (r *Reserved) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*r)) {
		q := (*r)[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// Set reads a list, which takes the place of what was there.
func (r *Reserved) Set(s string) error {
	*r = Reserved{}
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form resource=quantity", part)
		}
		switch v1.ResourceName(name) {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, reservedPIDs:
		default:
			return fmt.Errorf("cannot reserve %q resource: only cpu, memory, ephemeral-storage and pid", name)
		}
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("quantity of %s: %w", name, err)
		}
		if q.Sign() < 0 {
			return fmt.Errorf("resource quantity for %q cannot be negative: %s", name, value)
		}
		(*r)[v1.ResourceName(name)] = q
	}
	return nil
}
