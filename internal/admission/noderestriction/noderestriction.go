package noderestriction

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/auth/node"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// restriction keeps node agents from writing what is not about their node. The
// node authorizer has looked at names; this looks at contents.
type restriction struct {
	o       *admission.Options
	pods    client.Reader[*corev1.Pod]
	nodes   client.Reader[*corev1.Node]
	claims  client.Reader[*corev1.PersistentVolumeClaim]
	volumes client.Reader[*corev1.PersistentVolume]
	drivers client.Reader[*storagev1.CSIDriver]
}

// New keeps node agents to their own node.
func New(o *admission.Options) admission.Plugin {
	r := &restriction{
		o: o, pods: admission.Reader(o, core.Pods), nodes: admission.Reader(o, core.Nodes),
		claims: admission.Reader(o, core.PersistentVolumeClaims), volumes: admission.Reader(o, core.PersistentVolumes),
		drivers: admission.Reader(o, storage.CSIDrivers),
	}
	return admission.Plugin{Name: "NodeRestriction", Mutate: func(ctx context.Context, a *admission.Attributes) error {
		name, ok := node.Of(a.User)
		switch {
		case !ok:
			return nil
		case name == "":
			return a.Forbid("could not determine node from user %q", a.User.GetName())
		}
		return r.check(ctx, a, name)
	}}
}

func (r *restriction) check(ctx context.Context, a *admission.Attributes, node string) error {
	switch a.Def {
	case core.Pods.Def:
		return r.pod(ctx, a, node)
	case core.Nodes.Def:
		return r.node(a, node)
	case core.ServiceAccounts.Def:
		if a.Sub == "token" {
			return r.token(ctx, a, node)
		}
	case coordination.Leases.Def:
		if a.Namespace != corev1.NamespaceNodeLease || nameOf(a) != node {
			return a.Forbid("can only access node lease with the same name as the requesting node")
		}
	case certificates.PodCertificateRequests.Def:
		return r.podCertificate(ctx, a, node)
	case dra.ResourceSlices.Def:
		return resourceSlice(a, node)
	case core.PersistentVolumes.Def:
		return volume(a, node)
	case core.PersistentVolumeClaims.Def:
		return claim(a, node)
	case storage.CSINodes.Def:
		if nameOf(a) != node {
			return a.Forbid("can only access CSINode with the same name as the requesting node")
		}
	}
	return nil
}

// volume lets an agent say of volumes that it has erased them, and nothing else. Which these are the authorizer knows.
func volume(a *admission.Attributes, node string) error {
	if a.Operation != admission.Update {
		return nil
	}
	now, before := a.Object.(*corev1.PersistentVolume), a.Old.(*corev1.PersistentVolume)
	held := slices.DeleteFunc(slices.Clone(before.Finalizers), func(name string) bool { return name == claims.DeletedByDriver })
	if !slices.Equal(now.Finalizers, held) || !maps.Equal(now.Labels, before.Labels) || !maps.Equal(now.Annotations, before.Annotations) ||
		!equality.Semantic.DeepEqual(now.OwnerReferences, before.OwnerReferences) || !equality.Semantic.DeepEqual(now.Spec, before.Spec) {
		return a.Forbid("node %q can only remove the finalizer %s of volumes", node, claims.DeletedByDriver)
	}
	return nil
}

// claim lets an agent say of a claim how large its volume is and how far it has grown, and nothing else.
func claim(a *admission.Attributes, node string) error {
	if a.Sub != "status" {
		return a.Forbid("may only update PVC status")
	}
	if a.Operation != admission.Update {
		return a.Forbid("unexpected operation %q", a.Operation)
	}
	if !equality.Semantic.DeepEqual(withoutSize(a.Object.(*corev1.PersistentVolumeClaim)), withoutSize(a.Old.(*corev1.PersistentVolumeClaim))) {
		return a.Forbid("node %q is not allowed to update fields other than status.quantity and status.conditions", node)
	}
	return nil
}

// withoutSize is a claim without what agents may change, and what changes with every write.
func withoutSize(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	rest := c.DeepCopy()
	rest.ResourceVersion, rest.ManagedFields = "", nil
	s := &rest.Status
	s.Capacity, s.Conditions, s.AllocatedResources, s.AllocatedResourceStatuses = nil, nil, nil, nil
	return rest
}

// resourceSlice looks at the node of slices that are new, and of each that goes with
// others. Of single ones the authorizer knows.
func resourceSlice(a *admission.Attributes, node string) error {
	of := func(obj any) string {
		if s, ok := obj.(*resourcev1.ResourceSlice); ok && s.Spec.NodeName != nil {
			return *s.Spec.NodeName
		}
		return ""
	}
	switch {
	case a.Operation == admission.Create && of(a.Object) != node:
		return a.Forbid("can only create ResourceSlice with the same NodeName as the requesting node")
	case a.Operation == admission.Delete && of(a.Old) != node:
		return a.Forbid("can only delete ResourceSlice with the same NodeName as the requesting node")
	}
	return nil
}

// nameOf is the name of what is written; of a new object it may be in the object alone.
func nameOf(a *admission.Attributes) string {
	if obj, ok := a.Object.(resource.Object); ok && a.Name == "" {
		return obj.GetName()
	}
	return a.Name
}

func (r *restriction) pod(ctx context.Context, a *admission.Attributes, node string) error {
	switch a.Sub {
	case "":
		switch a.Operation {
		case admission.Create:
			return r.createPod(ctx, a, node)
		case admission.Delete:
			return r.onNode(ctx, a, node, "node %q can only delete pods with spec.nodeName set to itself")
		}
		return a.Forbid("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node)
	case "status":
		if err := r.onNode(ctx, a, node, "node %q can only update pod status for pods with spec.nodeName set to itself"); err != nil {
			return err
		}
		pod, old := a.Object.(*corev1.Pod), a.Old.(*corev1.Pod)
		if !maps.Equal(pod.Labels, old.Labels) {
			return a.Forbid("node %q cannot update labels through pod status", node)
		}
		// What a pod claims, its node may read.
		if !equality.Semantic.DeepEqual(pod.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses) {
			return a.Forbid("node %q cannot update resource claim statuses", node)
		}
		if !equality.Semantic.DeepEqual(pod.Status.ExtendedResourceClaimStatus, old.Status.ExtendedResourceClaimStatus) {
			return a.Forbid("node %q cannot update extended resource claim status", node)
		}
		return nil
	case "eviction":
		return r.onNode(ctx, a, node, "node %s can only evict pods with spec.nodeName set to itself")
	}
	return a.Forbid("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Sub)
}

// onNode refuses, with text, unless the pod is bound to the node.
func (r *restriction) onNode(ctx context.Context, a *admission.Attributes, node, text string) error {
	pod, ok := a.Old.(*corev1.Pod)
	if !ok {
		var err error
		if pod, err = r.findPod(ctx, a.Namespace, a.Name); err != nil {
			return err
		}
	}
	if pod.Spec.NodeName != node {
		return a.Forbid(text, node)
	}
	return nil
}

func (r *restriction) createPod(ctx context.Context, a *admission.Attributes, node string) error {
	pod := a.Object.(*corev1.Pod)
	switch {
	case !core.IsMirror(pod):
		return a.Forbid("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	case pod.Spec.NodeName != node:
		return a.Forbid("node %q can only create pods with spec.nodeName set to itself", node)
	}
	for ref := range core.References(pod) {
		if ref.Kind == core.ToServiceAccount {
			return a.Forbid("node %q can not create pods that reference a service account", node)
		}
		return a.Forbid("node %q can not create pods that reference %s", node, ref.Kind)
	}
	return r.ownsPod(ctx, a, pod, node)
}

func (r *restriction) ownsPod(ctx context.Context, a *admission.Attributes, pod *corev1.Pod, node string) error {
	if len(pod.OwnerReferences) > 1 {
		return a.Forbid("node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(pod.OwnerReferences) == 0 {
		return a.Forbid("node %q can only create pods with an owner reference set to itself", node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return a.Forbid("node %q can only create pods with an owner reference set to itself", node)
	case owner.Controller == nil || !*owner.Controller:
		return a.Forbid("node %q can only create pods with a controller owner reference set to itself", node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return a.Forbid("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	n, ok, err := admission.Find(ctx, r.o, r.nodes, "", node)
	switch {
	case err != nil:
		return err
	case !ok:
		return a.Forbid("node %q does not exist", node)
	case n.UID != owner.UID:
		return a.Forbid("node %s UID mismatch: expected %s got %s", owner.Name, owner.UID, n.UID)
	}
	return nil
}

func (r *restriction) node(a *admission.Attributes, node string) error {
	obj, _ := a.Object.(*corev1.Node)
	if a.Operation == admission.Create && obj != nil {
		if bad := forbiddenLabels(obj.Labels, nil); len(bad) > 0 {
			return a.Forbid("node %q is not allowed to set the following labels: %s", node, strings.Join(bad, ", "))
		}
		if obj.Spec.ConfigSource != nil {
			return a.Forbid("node %q is not allowed to create pods with a non-nil configSource", node)
		}
	}
	if name := nameOf(a); name != node {
		return a.Forbid("node %q is not allowed to modify node %q", node, name)
	}
	old, _ := a.Old.(*corev1.Node)
	if a.Operation != admission.Update || obj == nil || old == nil {
		return nil
	}
	if !equality.Semantic.DeepEqual(obj.Spec.Taints, old.Spec.Taints) {
		return a.Forbid("node %q is not allowed to modify taints", node)
	}
	if !reflect.DeepEqual(obj.OwnerReferences, old.OwnerReferences) {
		return a.Forbid("node %q is not allowed to modify ownerReferences", node)
	}
	if bad := forbiddenLabels(obj.Labels, old.Labels); len(bad) > 0 {
		return a.Forbid("is not allowed to modify labels: %s", strings.Join(bad, ", "))
	}
	return nil
}

// agentLabels are those of the system's domains that an agent may set on its
// own node, besides those of the domains kubelet.kubernetes.io and node.kubernetes.io.
var agentLabels = map[string]bool{
	"kubernetes.io/hostname": true, "kubernetes.io/arch": true, "kubernetes.io/os": true,
	"beta.kubernetes.io/arch": true, "beta.kubernetes.io/os": true, "beta.kubernetes.io/instance-type": true,
	"topology.kubernetes.io/zone": true, "topology.kubernetes.io/region": true,
	"failure-domain.beta.kubernetes.io/zone": true, "failure-domain.beta.kubernetes.io/region": true,
	"node.kubernetes.io/instance-type": true,
}

// forbiddenLabels lists the labels that differ and are not for agents to set:
// by node-restriction.kubernetes.io/ an administrator can mark nodes so that
// pods which trust the mark do not end up on a stolen one.
func forbiddenLabels(now, before map[string]string) []string {
	var bad []string
	check := func(key string) {
		if !agentLabel(key) && !slices.Contains(bad, key) {
			bad = append(bad, key)
		}
	}
	for k, v := range now {
		if old, ok := before[k]; !ok || old != v {
			check(k)
		}
	}
	for k := range before {
		if _, ok := now[k]; !ok {
			check(k)
		}
	}
	slices.Sort(bad)
	return bad
}

func agentLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return true
	}
	in := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	switch {
	case in("node-restriction.kubernetes.io"):
		return false
	case !in("kubernetes.io") && !in("k8s.io"):
		return true
	}
	return agentLabels[key] || in("kubelet.kubernetes.io") || in("node.kubernetes.io")
}

// findPod reads a pod that must be there.
func (r *restriction) findPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, ok, err := admission.Find(ctx, r.o, r.pods, namespace, name)
	if err == nil && !ok {
		err = apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return pod, err
}

// token checks that an agent asks for tokens of pods on its node only.
func (r *restriction) token(ctx context.Context, a *admission.Attributes, node string) error {
	req, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok || a.Operation != admission.Create {
		return nil
	}
	ref := req.Spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "":
		return a.Forbid("node requested token not bound to a pod")
	case ref.UID == "":
		return a.Forbid("node requested token with a pod binding without a uid")
	}
	pod, err := r.findPod(ctx, a.Namespace, ref.Name)
	switch {
	case err != nil:
		return err
	case pod.UID != ref.UID:
		return a.Forbid("the UID in the bound object reference (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", ref.UID, pod.UID)
	case pod.Spec.NodeName != node:
		return a.Forbid("node requested token bound to a pod scheduled on a different node")
	}
	return r.audience(ctx, a, pod)
}

// podCertificate checks that an agent asks for certificates of pods on its node only, and as
// what these are.
func (r *restriction) podCertificate(ctx context.Context, a *admission.Attributes, node string) error {
	req, ok := a.Object.(*certificatesv1.PodCertificateRequest)
	if !ok || a.Operation != admission.Create {
		return nil
	}
	s := &req.Spec
	if string(s.NodeName) != node {
		return a.Forbid("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", s.NodeName, node)
	}
	pod, err := r.findPod(ctx, a.Namespace, s.PodName)
	switch {
	case err != nil:
		return err
	case core.IsMirror(pod):
		return a.Forbid("pod %q is a mirror pod", s.PodName)
	case pod.UID != s.PodUID:
		return a.Forbid("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", s.PodName, s.PodUID, pod.UID)
	case pod.Spec.NodeName != node:
		return a.Forbid("pod %q is not running on node %q", s.PodName, node)
	case pod.Spec.ServiceAccountName != s.ServiceAccountName:
		return a.Forbid("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", s.PodName, s.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	n, ok, err := admission.Find(ctx, r.o, r.nodes, "", node)
	switch {
	case err != nil:
		return err
	case !ok:
		return apierrors.NewNotFound(corev1.Resource("nodes"), node)
	case n.UID != s.NodeUID:
		return a.Forbid("PodCertificateRequest for pod %q names node UID %q inconsistent with the running node (%q)", s.PodName, s.NodeUID, n.UID)
	}
	return nil
}
