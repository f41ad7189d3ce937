package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// RoundUp rounds quantities to thousandths, the finest that is stored.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		if exact := q.RoundUp(resource.Milli); !exact {
			list[name] = q
		}
	}
}

// SetIfZero gives a field that is not set a value.
func SetIfZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetIfAbsent adds a quantity that a list does not have, as a copy.
func SetIfAbsent(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// Warnings are the texts of Warning headers.
type Warnings []string

// Add appends a text.
func (w *Warnings) Add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// IP warns of an address, at a path, that is in no usual form. What is no address is not warned of.
func (w *Warnings) IP(path, ip string) {
	if netutils.ParseIPSloppy(ip) != nil {
		*w = append(*w, utilvalidation.GetWarningsForIP(field.NewPath(path), ip)...)
	}
}

// CIDR likewise warns of a range of addresses, of which people and programs make different things.
func (w *Warnings) CIDR(path, cidr string) {
	if _, _, err := netutils.ParseCIDRSloppy(cidr); err == nil {
		*w = append(*w, utilvalidation.GetWarningsForCIDR(field.NewPath(path), cidr)...)
	}
}

// Fractions warns of parts of bytes in a list, at a path.
func (w *Warnings) Fractions(path string, list corev1.ResourceList) {
	for _, name := range [...]corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage} {
		if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
			w.Add("%s[%s]: fractional byte value %q is invalid, must be an integer", path, name, q.String())
		}
	}
}
