package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/auth/bootstrap"
	"github.com/kemudi/kemudi/internal/auth/rbac"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/drain"
)

// Caches are those of what pods refer to. Those of kinds that the cluster does
// not have are nil: nothing is allowed because of them.
type Caches struct {
	Pods              *cache.Cache // with the index spec.nodeName; required
	Claims            *cache.Cache // PersistentVolumeClaims
	Volumes           *cache.Cache // PersistentVolumes
	VolumeAttachments *cache.Cache
	ResourceSlices    *cache.Cache
	PodCertificates   *cache.Cache // PodCertificateRequests
	NetworkPolicies   *cache.Cache
	Ingresses         *cache.Cache // with the index networking.IndexSecret
	IngressClasses    *cache.Cache
	Services          *cache.Cache // with the index core.IndexCertificate
}

// podsByNode is the index of pods by the node they are bound to.
const podsByNode = "spec.nodeName"

// Authorizer decides about requests of node agents. It may be used concurrently.
type Authorizer struct {
	c     Caches
	rules []rbacv1.PolicyRule
}

var (
	_ authorizer.UnconditionalAuthorizer = (*Authorizer)(nil)
	_ authorizer.RuleResolver            = (*Authorizer)(nil)
)

// New returns an authorizer over the caches.
func New(c Caches) *Authorizer { return &Authorizer{c: c, rules: bootstrap.NodeRules()} }

// Of returns the node whose agent the user is; ok is false for all others.
// name is empty if the user is a member of system:nodes without a node's name.
func Of(u user.Info) (name string, ok bool) {
	if !slices.Contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	name, _ = strings.CutPrefix(u.GetName(), "system:node:")
	if name == u.GetName() {
		return "", false
	}
	return name, true
}

// Authorize decides about one request. It denies nothing: what it does not
// allow may be allowed by a role.
func (a *Authorizer) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := Of(attrs.GetUser())
	if !ok {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if node == "" {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", attrs.GetUser().GetName()), nil
	}
	if !attrs.IsResourceRequest() && attrs.GetVerb() == "get" && (attrs.GetPath() == dialback.Path(node) || drain.IsPath(attrs.GetPath())) {
		return authorizer.DecisionAllow, "", nil
	}
	if why := a.refuses(node, attrs); why != "" {
		return authorizer.DecisionNoOpinion, why, nil
	}
	if rbac.Allows(a.rules, attrs) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// RulesFor says nothing of others than node agents, and cannot say what these may do: that
// depends on their pods.
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, ok := Of(u); ok {
		return nil, nil, true, errors.New("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}

// refuses says why a request that the rules may allow is not for this node;
// empty if nothing speaks against it.
func (a *Authorizer) refuses(node string, attrs authorizer.Attributes) string {
	if !attrs.IsResourceRequest() {
		return ""
	}
	switch attrs.GetAPIGroup() + "/" + attrs.GetResource() {
	case "/secrets":
		return a.secret(node, attrs)
	case "/configmaps":
		return a.reads(node, attrs, core.ToConfigMap)
	case "/persistentvolumeclaims":
		return a.claim(node, attrs)
	case "/persistentvolumes":
		return a.volume(node, attrs)
	case "storage.k8s.io/volumeattachments":
		return a.gets(node, attrs, func() bool { return a.attached(node, attrs.GetName()) })
	case "resource.k8s.io/resourceclaims":
		return a.gets(node, attrs, func() bool { return a.usesResourceClaim(node, attrs.GetNamespace(), attrs.GetName()) })
	case "resource.k8s.io/resourceslices":
		return a.resourceSlice(node, attrs)
	case "certificates.k8s.io/podcertificaterequests":
		return a.podCertificate(node, attrs)
	case "/serviceaccounts":
		return a.serviceAccount(node, attrs)
	case "/nodes":
		return own(node, attrs)
	case "coordination.k8s.io/leases":
		return lease(node, attrs)
	case "storage.k8s.io/csinodes":
		return csiNode(node, attrs)
	case "/pods":
		return a.pod(node, attrs)
	}
	return ""
}

func unrelated(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// secret lets an agent read what its pods refer to, and what an Ingress names that the edge
// of every node obeys, or a Service whose balancer it is: certificates, which all edges show. What edges are told of Gateways is for
// all nodes.
func (a *Authorizer) secret(node string, attrs authorizer.Attributes) string {
	why := a.reads(node, attrs, core.ToSecret)
	if why == unrelated(node) && (a.shown(attrs.GetNamespace(), attrs.GetName()) || gatewayTable(attrs.GetNamespace(), attrs.GetName())) {
		return ""
	}
	return why
}

// reads checks that single secrets or config maps are read by name.
func (a *Authorizer) reads(node string, attrs authorizer.Attributes, k core.ReferenceKind) string {
	switch attrs.GetVerb() {
	case "get", "list", "watch":
	default:
		return "can only read resources of this type"
	}
	switch {
	case attrs.GetSubresource() != "":
		return "cannot read subresource"
	case attrs.GetNamespace() == "":
		return "can only read namespaced object of this type"
	case attrs.GetName() == "":
		return "No Object name found"
	case !a.refers(node, attrs.GetNamespace(), core.Reference{Kind: k, Name: attrs.GetName()}):
		return unrelated(node)
	}
	return ""
}

func (a *Authorizer) gets(node string, attrs authorizer.Attributes, related func() bool) string {
	switch {
	case attrs.GetVerb() != "get":
		return "can only get individual resources of this type"
	case attrs.GetSubresource() != "":
		return "cannot get subresource"
	case attrs.GetName() == "":
		return "No Object name found"
	case !related():
		return unrelated(node)
	}
	return ""
}

func (a *Authorizer) claim(node string, attrs authorizer.Attributes) string {
	related := func() bool {
		return a.refers(node, attrs.GetNamespace(), core.Reference{Kind: core.ToClaim, Name: attrs.GetName()})
	}
	if attrs.GetSubresource() != "status" {
		if v := attrs.GetVerb(); (v == "list" || v == "watch") && attrs.GetName() != "" { // to hear that it is to grow
			return a.reads(node, attrs, core.ToClaim)
		}
		return a.gets(node, attrs, related)
	}
	switch attrs.GetVerb() {
	case "get", "update", "patch":
	default:
		return "can only get/update/patch this type of resource"
	}
	if attrs.GetName() == "" || !related() {
		return unrelated(node)
	}
	return ""
}

// volume lets an agent follow the volumes that are directories of its node, and
// delete them when their claims are gone, and let go of those that others have deleted; of others it gets those that its pods use.
func (a *Authorizer) volume(node string, attrs authorizer.Attributes) string {
	switch attrs.GetVerb() {
	case "list", "watch":
		return selected(attrs, claims.LocalNode, node, "can only list/watch volumes of its own node by field selector")
	case "delete":
		if v := find[*corev1.PersistentVolume](a.c.Volumes, attrs.GetName()); v == nil || claims.LocalTo(v) != node || v.Status.Phase != corev1.VolumeReleased {
			return unrelated(node)
		}
		return ""
	case "update":
		v := find[*corev1.PersistentVolume](a.c.Volumes, attrs.GetName())
		if v == nil || attrs.GetSubresource() != "" || claims.LocalTo(v) != node || v.DeletionTimestamp == nil || v.Status.Phase == corev1.VolumeBound {
			return unrelated(node)
		}
		return ""
	}
	return a.gets(node, attrs, func() bool { return a.usesVolume(node, attrs.GetName()) })
}

// resourceSlice lets an agent deal with what drivers publish of its node.
func (a *Authorizer) resourceSlice(node string, attrs authorizer.Attributes) string {
	if attrs.GetSubresource() != "" {
		return "cannot authorize ResourceSlice subresources"
	}
	switch attrs.GetVerb() {
	case "create": // admission looks at the node
		return ""
	case "list", "watch", "deletecollection":
		return selected(attrs, resourcev1.ResourceSliceSelectorNodeName, node, "can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	if s := find[*resourcev1.ResourceSlice](a.c.ResourceSlices, attrs.GetName()); s == nil || s.Spec.NodeName == nil || *s.Spec.NodeName != node {
		return unrelated(node)
	}
	return ""
}

// podCertificate lets an agent ask for certificates of its pods, and see what became of it.
func (a *Authorizer) podCertificate(node string, attrs authorizer.Attributes) string {
	if attrs.GetSubresource() != "" {
		return "cannot authorize PodCertificateRequest subresources"
	}
	switch attrs.GetVerb() {
	case "create": // admission looks at the pod
		return ""
	case "list", "watch":
		if pod := a.podAsked(attrs); pod != nil && pod.Spec.NodeName == node {
			return ""
		}
		return selected(attrs, "spec.nodeName", node, "can only list/watch podcertificaterequests with nodeName field selector")
	}
	if r := find[*certificatesv1.PodCertificateRequest](a.c.PodCertificates, cache.Key(attrs.GetNamespace(), attrs.GetName())); r == nil || string(r.Spec.NodeName) != node {
		return unrelated(node)
	}
	return ""
}

// podAsked is the pod whose requests for certificates are selected; nil: there is none.
func (a *Authorizer) podAsked(attrs authorizer.Attributes) *corev1.Pod {
	reqs, err := attrs.GetFieldSelector()
	if err != nil {
		return nil
	}
	for _, r := range reqs {
		if r.Field == "spec.podName" && r.Operator == selection.Equals {
			return find[*corev1.Pod](a.c.Pods, cache.Key(attrs.GetNamespace(), r.Value))
		}
	}
	return nil
}

// selected says why a list or watch is refused unless a field selector narrows it to
// one value.
func selected(attrs authorizer.Attributes, field, value, why string) string {
	reqs, err := attrs.GetFieldSelector()
	if err != nil {
		return err.Error()
	}
	for _, r := range reqs {
		if r.Field == field && r.Operator == selection.Equals && r.Value == value {
			return ""
		}
	}
	return why
}

func (a *Authorizer) serviceAccount(node string, attrs authorizer.Attributes) string {
	switch {
	case attrs.GetVerb() == "get" && attrs.GetSubresource() == "":
	case attrs.GetVerb() == "create" && attrs.GetSubresource() == "token":
	default:
		return "can only create tokens for individual service accounts"
	}
	if attrs.GetName() == "" || !a.refers(node, attrs.GetNamespace(), core.Reference{Kind: core.ToServiceAccount, Name: attrs.GetName()}) {
		return unrelated(node)
	}
	return ""
}

// own checks that an agent reads the object of its own node alone, by its name: also before there is
// one. Whose node it is that is written, admission looks at: it says that to people.
func own(node string, attrs authorizer.Attributes) string {
	switch attrs.GetVerb() {
	case "get", "list", "watch":
	default:
		return ""
	}
	switch attrs.GetName() {
	case node:
		return ""
	case "":
		return fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
	}
	return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, attrs.GetName())
}

func lease(node string, attrs authorizer.Attributes) string {
	switch attrs.GetVerb() {
	case "get", "create", "update", "patch", "delete":
	default:
		return "can only get, create, update, patch, or delete a node lease"
	}
	switch {
	case attrs.GetNamespace() != corev1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case attrs.GetVerb() != "create" && attrs.GetName() != node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}

func csiNode(node string, attrs authorizer.Attributes) string {
	switch {
	case attrs.GetSubresource() != "":
		return "cannot authorize CSINode subresources"
	case attrs.GetVerb() != "create" && attrs.GetName() != node:
		return "can only access CSINode with the same name as the requesting node"
	}
	return ""
}

// pod checks that an agent deals with the pods of its own node. What it writes
// is for admission to look at. While there are network policies it may see all pods:
// whose connections it lets pass depends on their labels and addresses.
func (a *Authorizer) pod(node string, attrs authorizer.Attributes) string {
	switch attrs.GetVerb() {
	case "list", "watch":
		if a.c.NetworkPolicies != nil && a.c.NetworkPolicies.Len() > 0 {
			return ""
		}
		return selected(attrs, podsByNode, node, "can only list/watch pods with spec.nodeName field selector")
	case "get":
		if it := a.c.Pods.Get(cache.Key(attrs.GetNamespace(), attrs.GetName())); it == nil || it.Object.(*corev1.Pod).Spec.NodeName != node {
			return unrelated(node)
		}
	}
	return ""
}

func (a *Authorizer) attached(node, name string) bool {
	va := find[*storagev1.VolumeAttachment](a.c.VolumeAttachments, name)
	return va != nil && va.Spec.NodeName == node
}
