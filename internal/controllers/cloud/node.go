package cloud

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// NewNode returns the loop that initialises nodes: it tells them what the cloud knows of
// their machines, takes the taint away that kept pods off until then, and keeps their addresses
// as the cloud has them.
func NewNode(o Options) *controller.Controller {
	o = o.withDefaults()
	return controller.New(controller.Spec[*corev1.Node]{
		Name:    nodeName,
		For:     core.Nodes,
		Writes:  []controller.Permission{controller.Update(core.Nodes.Def), controller.Patch(core.Nodes.Def, "status")},
		Workers: 1,
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] {
			m, _ := o.machines()
			return &nodes{
				k: k, machines: m, nodes: controller.For(k, core.Nodes), metrics: controller.OwnMetrics(k, newNodeMetrics),
				first: newPace(0, time.Second, lastRetry), again: newPace(o.StatusPeriod, o.StatusPeriod, o.StatusPeriod),
			}
		},
	})
}

type nodes struct {
	k        *controller.Kit
	machines machines
	nodes    controller.Client[*corev1.Node]
	first    *pace // of asking for all that is known of a node
	again    *pace // and then for its addresses
	metrics  nodeMetrics
}

// Gone forgets a node.
func (r *nodes) Gone(_ context.Context, name string) error {
	r.first.forget(name)
	r.again.forget(name)
	return nil
}

// Reconcile initialises a node that waits for it; of others it keeps labels and addresses.
func (r *nodes) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	if node.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	if uninitialised(node) {
		return r.initialise(ctx, node)
	}
	if labels := agreeing(node.Labels); labels != nil {
		node = node.DeepCopy()
		node.Labels = labels
		_, err := r.nodes.Update(ctx, node)
		return controller.Done, err
	}
	if left := r.again.left(node.Name, askedBy(node)); left > 0 {
		return controller.After(left).Behind(), nil
	}
	addresses, err := r.machines.addresses(ctx, node)
	if err == nil {
		err = r.setAddresses(ctx, node, addresses)
	}
	if r.again.asked(node.Name, askedBy(node), err) { // not now, then the next time: what the node has may well be right
		r.k.Logger.Error("ask the cloud for a node's addresses", "node", node.Name, "err", err)
		r.k.Events.Event(node, corev1.EventTypeWarning, "FailedToUpdateNodeAddresses", fmt.Sprintf("Node keeps the addresses that it has: %v", err))
	}
	return controller.After(r.again.every).Behind(), nil
}

// conflicts is how often a node is written again that somebody else has written meanwhile.
const conflicts = 5

// askedBy is what of a node its cloud is asked by, and what decides whether the answer will do.
func askedBy(node *corev1.Node) string {
	return strings.Join([]string{string(node.UID), node.Spec.ProviderID, node.Annotations[cloudapi.AnnotationAlphaProvidedIPAddr]}, " ")
}

// initialise tells a node what the cloud knows of its machine, or the node's people why not.
func (r *nodes) initialise(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	if left := r.first.left(node.Name, askedBy(node)); left > 0 {
		return controller.After(left), nil
	}
	m, err := r.machine(ctx, node)
	if r.first.asked(node.Name, askedBy(node), err) {
		r.k.Logger.Error("initialise a node", "node", node.Name, "err", err)
		r.k.Events.Event(node, corev1.EventTypeWarning, "FailedToInitializeNode",
			fmt.Sprintf("Node stays tainted with %s, and the cloud is asked again: %v", cloudapi.TaintExternalCloudProvider, err))
	}
	if err != nil {
		return controller.After(r.first.left(node.Name, askedBy(node))), nil
	}
	if m == nil { // the cloud leaves this one alone
		return controller.Done, nil
	}
	return controller.Done, r.write(ctx, node, m)
}

// machine is what the cloud says of a node, if that can be; nil: nothing.
func (r *nodes) machine(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	m, err := r.machines.all(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("failed to get instance metadata for node %s: %w", node.Name, err)
	}
	if m == nil {
		return nil, nil
	}
	if err := believable(m); err != nil {
		return nil, fmt.Errorf("what the cloud says of node %s cannot be: %w", node.Name, err)
	}
	if other := r.sharing(node, m.ProviderID); other != "" {
		return nil, fmt.Errorf("the cloud says that node %s is machine %s, which node %s is already", node.Name, m.ProviderID, other)
	}
	if _, err := preferred(node, m.NodeAddresses); err != nil {
		return nil, fmt.Errorf("provided node ip for node %q is not valid: %w", node.Name, err)
	}
	return m, nil
}

// write initialises a node. What the cloud says is written as a whole or not at all, but for the
// addresses, which are of the status.
func (r *nodes) write(ctx context.Context, node *corev1.Node, m *cloudprovider.InstanceMetadata) error {
	fresh, err := r.nodes.Update(ctx, r.initialised(node, m))
	// A node that has just come is written by many: the cloud is not asked again for each of them.
	for by, tries := askedBy(node), 0; apierrors.IsConflict(err) && tries < conflicts; tries++ {
		now, getErr := r.nodes.Live(ctx, "", node.Name)
		if getErr != nil || !uninitialised(now) || askedBy(now) != by {
			return err
		}
		fresh, err = r.nodes.Update(ctx, r.initialised(now, m))
	}
	if err != nil {
		return err
	}
	age := func() float64 { return time.Since(fresh.CreationTimestamp.Time).Seconds() }
	r.metrics.untainted.Observe(age())
	if err := r.setAddresses(ctx, fresh, m.NodeAddresses); err != nil {
		r.k.Logger.Error("set the addresses of a node as the cloud has them", "node", node.Name, "err", err)
	} else {
		r.again.asked(node.Name, askedBy(fresh), nil)
	}
	r.k.Events.Event(fresh, corev1.EventTypeNormal, "Synced", "Node synced successfully")
	r.metrics.initialised.Observe(age())
	return nil
}

// initialised is the node with what the cloud says, and without the taint.
func (r *nodes) initialised(node *corev1.Node, m *cloudprovider.InstanceMetadata) *corev1.Node {
	node = node.DeepCopy()
	if node.Spec.ProviderID == "" {
		node.Spec.ProviderID = m.ProviderID
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider })
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	for _, twins := range twinLabels {
		if value := twins.of(m); value != "" {
			node.Labels[twins.old], node.Labels[twins.today] = value, value
		}
	}
	for key, value := range m.AdditionalLabels {
		has, taken := node.Labels[key]
		switch {
		case reserved.MatchString(key):
			r.k.Logger.Warn("discarding node label with kubernetes namespace", "node", node.Name, "label", key)
		case taken && has != value:
			r.k.Logger.Warn("discarding node label that is already present", "node", node.Name, "label", key)
		default:
			node.Labels[key] = value
		}
	}
	return node
}

// reserved are labels that no cloud gives.
var reserved = regexp.MustCompile(`(^|\.)(kubernetes|k8s)\.io/`)

// twinLabels say the same, by the name of old and by today's.
var twinLabels = []struct {
	old, today string
	of         func(m *cloudprovider.InstanceMetadata) string
}{
	{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone, func(m *cloudprovider.InstanceMetadata) string { return m.Zone }},
	{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion, func(m *cloudprovider.InstanceMetadata) string { return m.Region }},
	{corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, func(m *cloudprovider.InstanceMetadata) string { return m.InstanceType }},
}

// agreeing are the labels of a node with those of today as those of old say, which is upstream's
// order; nil: they do agree.
func agreeing(labels map[string]string) (out map[string]string) {
	for _, twins := range twinLabels {
		value, ok := labels[twins.old]
		if has, there := labels[twins.today]; !ok || there && has == value {
			continue
		}
		if out == nil {
			out = maps.Clone(labels)
		}
		out[twins.today] = value
	}
	return out
}

func uninitialised(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider })
}

// sharing is another node that is the same machine; empty: there is none.
func (r *nodes) sharing(node *corev1.Node, id string) string {
	if id == "" {
		return ""
	}
	for _, other := range r.nodes.List("", nil) {
		if other.Name != node.Name && other.Spec.ProviderID == id {
			return other.Name
		}
	}
	return ""
}

// believable says what of a machine cannot be.
func believable(m *cloudprovider.InstanceMetadata) error {
	for _, twins := range twinLabels {
		if wrong := validation.IsValidLabelValue(twins.of(m)); len(wrong) > 0 {
			return fmt.Errorf("%s %q: %s", twins.today, twins.of(m), strings.Join(wrong, "; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.AdditionalLabels)) {
		wrong := validation.IsQualifiedName(key)
		if wrong = append(wrong, validation.IsValidLabelValue(m.AdditionalLabels[key])...); len(wrong) > 0 {
			return fmt.Errorf("label %s=%q: %s", key, m.AdditionalLabels[key], strings.Join(wrong, "; "))
		}
	}
	return believableAddresses(m.NodeAddresses)
}
