package apiregistration

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Priority is where a group-version stands among others: its group among the groups, its
// version within the group, the higher number first.
type Priority struct{ Group, Version int32 }

// PriorityOf is where a group-version that this server has stands, by upstream's numbers. Groups
// that are not built in, and those of before, have those of custom resources.
func PriorityOf(gv schema.GroupVersion) Priority {
	group, ok := groupPriority[gv.Group]
	if !ok {
		return Priority{1000, 100}
	}
	if v, ok := versionPriority[gv]; ok {
		return Priority{group, v}
	}
	switch {
	case strings.Contains(gv.Version, "alpha"):
		return Priority{group, 1}
	case strings.Contains(gv.Version, "beta"):
		return Priority{group, 9}
	}
	return Priority{group, 15}
}

// groupPriority has where groups stand: where a plural is in several, the first wins in kubectl.
var groupPriority = map[string]int32{
	"":                             18000,
	"apiregistration.k8s.io":       20000, // who serves what comes before all else; no APIService says so
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"admissionregistration.k8s.io": 16700,
	"apiextensions.k8s.io":         16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15800,
}

// versionPriority has the versions that do not stand where others of their stability do.
var versionPriority = map[schema.GroupVersion]int32{
	{Group: "", Version: "v1"}:                                   1,
	{Group: "apps", Version: "v1beta1"}:                          1,
	{Group: "autoscaling", Version: "v2"}:                        30,
	{Group: "autoscaling", Version: "v2beta2"}:                   1,
	{Group: "batch", Version: "v2alpha1"}:                        9,
	{Group: "events.k8s.io", Version: "v1beta1"}:                 5,
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}:  12,
	{Group: "admissionregistration.k8s.io", Version: "v1alpha1"}: 9,
	{Group: "discovery.k8s.io", Version: "v1beta1"}:              12,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:       21,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3"}:  18,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta2"}:  15,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta1"}:  12,
}
