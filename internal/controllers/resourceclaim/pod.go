package resourceclaim

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/resource"
)

// pod makes the claims of a pod that are not there, writes into its status what they are
// called, and takes the pod into claims if it is on a node already.
func (r *reconciler) pod(ctx context.Context, p *corev1.Pod) error {
	var made []any
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		name, err := r.make(ctx, p, c)
		if err != nil {
			r.events.Event(p, corev1.EventTypeWarning, "FailedResourceClaimCreation", fmt.Sprintf("PodResourceClaim %s: %v", c.Name, err))
			return fmt.Errorf("pod %s/%s, PodResourceClaim %s: %w", p.Namespace, p.Name, c.Name, err)
		}
		if name != "" {
			made = append(made, map[string]any{"name": c.Name, "resourceClaimName": name})
		}
	}
	if len(made) > 0 {
		if _, err := r.pods.StrategicPatch(ctx, p, "status", map[string]any{"status": map[string]any{"resourceClaimStatuses": made}}); err != nil {
			return fmt.Errorf("update pod %s/%s ResourceClaimStatuses: %w", p.Namespace, p.Name, err)
		}
		return nil // the change of the pod comes here again
	}
	if p.Spec.NodeName == "" {
		return nil // the scheduler reserves
	}
	for _, name := range core.ResourceClaimNames(p) {
		if err := r.reserve(ctx, p, name); err != nil {
			return err
		}
	}
	return nil
}

// make makes the claim of a pod if there is none, and returns its name if that is not in
// the pod's status yet. A claim that was made already, but not written down, is used.
func (r *reconciler) make(ctx context.Context, p *corev1.Pod, pc *corev1.PodResourceClaim) (string, error) {
	name, known := core.ResourceClaimName(p, pc)
	if pc.ResourceClaimTemplateName == nil || known && name == "" {
		return "", nil // the user's, or not needed
	}
	// One that is in the status, but was deleted or belongs to somebody else, is made again.
	if c, ok := r.claims.Get(p.Namespace, name); ok && metav1.IsControlledBy(c, p) {
		return "", nil
	}
	for _, c := range r.claims.ByIndex(resource.IndexController, string(p.UID)) {
		if of, ok := c.Annotations[resourcev1.PodResourceClaimAnnotation]; ok && of == pc.Name && c.DeletionTimestamp == nil {
			return c.Name, nil
		}
	}
	t, ok := r.templates.Get(p.Namespace, *pc.ResourceClaimTemplateName)
	if !ok {
		missing := apierrors.NewNotFound(schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaimtemplate"}, *pc.ResourceClaimTemplateName)
		return "", fmt.Errorf("resource claim template %q: %w", *pc.ResourceClaimTemplateName, missing)
	}
	made, err := r.claims.Create(ctx, fromTemplate(p, pc.Name, t))
	r.metrics.made(&t.Spec.Spec, err)
	if err != nil {
		return "", fmt.Errorf("create ResourceClaim : %w", err)
	}
	return made.Name, nil
}

// fromTemplate is the claim that a pod gets, without a name.
func fromTemplate(p *corev1.Pod, podClaim string, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	from := t.Spec.DeepCopy()
	annotations := map[string]string{}
	maps.Copy(annotations, from.Annotations)
	annotations[resourcev1.PodResourceClaimAnnotation] = podClaim
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: claimPrefixOf(p.Name, podClaim), Labels: from.Labels, Annotations: annotations,
			// It does not hold up the pod's end: it goes when the pod is gone.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}},
		},
		Spec: from.Spec,
	}
}

// maxPrefix leaves room for a dash and what is added to make a name of 63 bytes unique.
const maxPrefix = 57

// claimPrefixOf begins the names of claims. Of names that are too long for it each loses
// the same share, so that something of both is left.
func claimPrefixOf(pod, podClaim string) string {
	prefix := pod + "-" + podClaim + "-"
	if n := len(prefix); n > maxPrefix {
		prefix = pod[:len(pod)*maxPrefix/n] + "-" + podClaim[:len(podClaim)*maxPrefix/n]
	}
	return prefix
}

// reserve takes a pod into a claim that is allocated. That is for the scheduler to do: it
// is done here for pods that somebody else put on their node.
func (r *reconciler) reserve(ctx context.Context, p *corev1.Pod, name string) error {
	c, ok := r.claims.Get(p.Namespace, name)
	if !ok || c.Status.Allocation == nil || len(c.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize || dra.Reserved(c, p.UID) {
		return nil
	}
	c = c.DeepCopy()
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	if _, err := r.claims.UpdateStatus(ctx, c); err != nil {
		return fmt.Errorf("reserve claim %s/%s for pod: %w", p.Namespace, name, err)
	}
	return nil
}
