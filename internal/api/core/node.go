package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Nodes is the machines of the cluster.
var Nodes = resource.Define(resource.Spec[*corev1.Node]{
	Names:   resource.Names{Version: "v1", Kind: "Node", Plural: "nodes", Short: []string{"no"}, StoragePrefix: "minions"},
	Default: defaultNode, Prepare: prepareNode, Validate: validateNode, Warn: warnNode,
	Columns: nodeColumns,
	Caching: resource.Caching[*corev1.Node]{Minor: isHeartbeat},
	Fields: map[string]func(*corev1.Node) string{
		"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) },
	},
	Sub: []resource.Sub[*corev1.Node]{
		{Name: "status", Merge: func(n, old *corev1.Node) { n.Spec = old.Spec }, Validate: validateNode},
		{Name: "proxy", Verbs: proxyVerbs, Handler: resource.HandleProxy, Body: &resource.Body{
			Version: "v1", Kind: "NodeProxyOptions", New: func() runtime.Object { return &corev1.NodeProxyOptions{} },
		}},
	},
})

func defaultNode(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	check.RoundUp(n.Status.Capacity)
	check.RoundUp(n.Status.Allocatable)
	switch {
	case n.Spec.PodCIDR != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDRs[0] != n.Spec.PodCIDR):
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	case n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) > 0:
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
}

// isHeartbeat reports that a change of a node says no more than that the node is there: when
// its conditions were looked at.
func isHeartbeat(was, is *corev1.Node) bool {
	conditions := is.Status.Conditions
	if len(was.Status.Conditions) != len(conditions) {
		return false
	}
	beat := *was
	beat.ResourceVersion, beat.ManagedFields = is.ResourceVersion, is.ManagedFields
	beat.Status.Conditions = slices.Clone(was.Status.Conditions)
	for i := range conditions {
		beat.Status.Conditions[i].LastHeartbeatTime = conditions[i].LastHeartbeatTime
	}
	return equality.Semantic.DeepEqual(&beat, is)
}

// prepareNode drops the configuration that nodes could once be sent. A node may
// bring its status when it registers; later it writes it apart.
func prepareNode(n, old *corev1.Node) {
	if old != nil {
		n.Status = old.Status
		n.Spec.ConfigSource = old.Spec.ConfigSource
		return
	}
	n.Spec.ConfigSource = nil
	n.Status.Config = nil
}

func validateNode(n, old *corev1.Node, errs *resource.Errors) {
	validateTaints(errs, n.Spec.Taints)
	for name, q := range n.Status.Capacity {
		check.Quantity(errs.At("status.capacity.%s", name), "", name, q)
	}
	for name, q := range n.Status.Allocatable {
		check.Quantity(errs.At("status.allocatable.%s", name), "", name, q)
	}
	if old == nil {
		validatePodCIDRs(errs.At("spec"), n.Spec.PodCIDRs, nil)
		return
	}
	for i, address := range n.Status.Addresses {
		if slices.Contains(n.Status.Addresses[:i], address) {
			errs.At("status.addresses[%d]", i).Duplicate("", address)
		}
	}
	if len(old.Spec.PodCIDRs) == 0 {
		validatePodCIDRs(errs.At("spec"), n.Spec.PodCIDRs, nil)
	} else if !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs.Forbidden("spec.podCIDRs", "node updates may not change podCIDR except from \"\" to valid")
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs.Forbidden("spec.providerID", "node updates may not change providerID except from \"\" to valid")
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs.Forbidden("spec.externalID", "may not be updated")
	}
}

func validatePodCIDRs(errs *resource.Errors, cidrs, before []string) {
	for i, cidr := range cidrs {
		check.CIDR(errs.At("podCIDRs[%d]", i), "", cidr, before...)
	}
	if len(cidrs) < 2 {
		return
	}
	if dual, err := netutils.IsDualStackCIDRStrings(cidrs); err != nil || !dual || len(cidrs) > 2 {
		errs.Invalid("podCIDRs", cidrs, "may specify no more than one CIDR for each IP family")
	}
	for i, cidr := range cidrs {
		if slices.Contains(cidrs[:i], cidr) {
			errs.At("podCIDRs[%d]", i).Duplicate("", cidr)
		}
	}
}

func validateTaints(errs *resource.Errors, taints []corev1.Taint) {
	for i := range taints {
		t, at := &taints[i], errs.At("metadata.taints[%d]", i)
		check.QualifiedName(at, "key", t.Key)
		if msgs := utilvalidation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			at.Invalid("value", t.Value, strings.Join(msgs, ";"))
		}
		if t.Effect == "" {
			at.Required("effect", "")
		} else {
			check.TaintEffect(at, t.Effect)
		}
		if slices.ContainsFunc(taints[:i], func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			at.DuplicateBecause("", t, "taints must be unique by key and effect pair")
		}
	}
}

func warnNode(n, old *corev1.Node) []string {
	var w check.Warnings
	if n.Spec.ConfigSource != nil {
		w.Add("spec.configSource: the feature is no longer supported")
	}
	if n.Spec.DoNotUseExternalID != "" {
		w.Add("spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		w.CIDR(fmt.Sprintf("spec.podCIDRs[%d]", i), cidr)
	}
	return w
}

var nodeColumns = []resource.Column[*corev1.Node]{
	{
		Name: "Status", Description: "The status of the node",
		Value: func(n *corev1.Node) any { return nodeStatus(n) },
	},
	{
		Name: "Roles", Description: "The roles of the node",
		Value: func(n *corev1.Node) any { return orNone(strings.Join(nodeRoles(n), ",")) },
	},
	resource.AgeColumn[*corev1.Node](),
	{
		Name: "Version", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"],
		Value: func(n *corev1.Node) any { return n.Status.NodeInfo.KubeletVersion },
	},
	{
		Name: "Internal-IP", Priority: 1, Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"],
		Value: func(n *corev1.Node) any { return nodeAddress(n, corev1.NodeInternalIP) },
	},
	{
		Name: "External-IP", Priority: 1, Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"],
		Value: func(n *corev1.Node) any { return nodeAddress(n, corev1.NodeExternalIP) },
	},
	{
		Name: "OS-Image", Priority: 1, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"],
		Value: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.OSImage) },
	},
	{
		Name: "Kernel-Version", Priority: 1, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"],
		Value: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.KernelVersion) },
	},
	{
		Name: "Container-Runtime", Priority: 1, Description: corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"],
		Value: func(n *corev1.Node) any { return orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion) },
	},
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	if c := NodeCondition(&n.Status, corev1.NodeReady); c != nil {
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// Labels that give a node a role: in the key, or the old way as the value.
const (
	roleLabelPrefix = "node-role.kubernetes.io/"
	roleLabel       = "kubernetes.io/role"
)

// nodeRoles are the roles that labels give a node, in alphabetical order.
func nodeRoles(n *corev1.Node) []string {
	var roles []string
	for key, value := range n.Labels {
		role, ok := strings.CutPrefix(key, roleLabelPrefix)
		switch {
		case ok && role != "":
		case key == roleLabel && value != "":
			role = value
		default:
			continue
		}
		roles = append(roles, role)
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, address := range n.Status.Addresses {
		if address.Type == t {
			return address.Address
		}
	}
	return "<none>"
}

// NodeCondition returns the condition of a type, or nil. It points into s.
func NodeCondition(s *corev1.NodeStatus, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// NodeIsReady reports whether a node can run pods.
func NodeIsReady(n *corev1.Node) bool {
	c := NodeCondition(&n.Status, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
