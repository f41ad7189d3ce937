package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
)

const (
	finalizer = "gardens.example.com/tidy"
	toolLabel = "gardens.example.com/tool" // of Secrets that the cache holds
	ownerKey  = "spec.owner"               // index of gardens
)

// gardener sees to gardens.
type gardener struct {
	name   string // of the manager
	client client.Client
	events events.EventRecorder
}

// setUpWebhooks makes a manager answer for both webhooks, and convert.
func setUpWebhooks(m manager.Manager) error {
	return ctrl.NewWebhookManagedBy(m, &Garden{}).WithDefaulter(rules{}).WithValidator(rules{}).Complete()
}

// setUpController makes a manager see to gardens.
func setUpController(ctx context.Context, m manager.Manager, name string) error {
	g := &gardener{name: name, client: m.GetClient(), events: m.GetEventRecorder("gardener")}
	if err := m.GetFieldIndexer().IndexField(ctx, &Garden{}, ownerKey, func(o client.Object) []string {
		return []string{o.(*Garden).Spec.Owner}
	}); err != nil {
		return err
	}
	notes := &metav1.PartialObjectMetadata{}
	notes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return ctrl.NewControllerManagedBy(m).For(&Garden{}).Owns(&appsv1.Deployment{}).
		Owns(notes, builder.OnlyMetadata).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(g.ofTool)).
		Complete(g)
}

// ofTool are the gardens of a tool's owner.
func (g *gardener) ofTool(ctx context.Context, tool client.Object) (out []reconcile.Request) {
	var all GardenList
	if err := g.client.List(ctx, &all, client.InNamespace(tool.GetNamespace()), client.MatchingFields{ownerKey: tool.GetLabels()[toolLabel]}); err != nil {
		return nil
	}
	for i := range all.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return out
}

// Reconcile brings one garden into order.
func (g *gardener) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var it Garden
	if err := g.client.Get(ctx, req.NamespacedName, &it); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !it.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, g.tidy(ctx, &it)
	}
	if before := it.DeepCopyObject().(*Garden); controllerutil.AddFinalizer(&it, finalizer) {
		if err := g.client.Patch(ctx, &it, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if err := errors.Join(g.plant(ctx, &it), g.note(ctx, &it)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, g.report(ctx, &it)
}

// tidy leaves a mark that the garden was, and lets it go.
func (g *gardener) tidy(ctx context.Context, it *Garden) error {
	if !controllerutil.ContainsFinalizer(it, finalizer) {
		return nil
	}
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: it.Namespace, Name: it.Name + "-was"}}
	if err := g.client.Create(ctx, mark); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	controllerutil.RemoveFinalizer(it, finalizer)
	return client.IgnoreNotFound(g.client.Update(ctx, it))
}

// plant applies the garden's Deployment.
func (g *gardener) plant(ctx context.Context, it *Garden) error {
	labels := map[string]string{"garden": it.Name}
	return g.client.Apply(ctx, appsac.Deployment(it.Name, it.Namespace).
		WithOwnerReferences(metaac.OwnerReference().WithAPIVersion(v1.String()).WithKind("Garden").WithName(it.Name).WithUID(it.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsac.DeploymentSpec().WithReplicas(it.Spec.Beds).WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
				WithContainers(coreac.Container().WithName("bed").WithImage("bed"))))),
		client.FieldOwner("gardener"), client.ForceOwnership)
}

// note keeps a ConfigMap beside it.
func (g *gardener) note(ctx context.Context, it *Garden) error {
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: it.Namespace, Name: it.Name + "-note"}}
	var tools corev1.SecretList
	if err := g.client.List(ctx, &tools, client.InNamespace(it.Namespace)); err != nil {
		return err
	}
	done, err := controllerutil.CreateOrUpdate(ctx, g.client, note, func() error {
		note.Data = map[string]string{"by": g.name, "tools": fmt.Sprint(len(tools.Items))}
		return controllerutil.SetControllerReference(it, note, g.client.Scheme())
	})
	if done == controllerutil.OperationResultCreated {
		g.events.Eventf(it, note, corev1.EventTypeNormal, "Noted", "Note", "wrote %s", note.Name)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // the cache was behind: its event brings us here again
	}
	return err
}

// report writes the status.
func (g *gardener) report(ctx context.Context, it *Garden) error {
	var d appsv1.Deployment
	if err := g.client.Get(ctx, types.NamespacedName{Namespace: it.Namespace, Name: it.Name}, &d); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := it.DeepCopyObject().(*Garden)
	it.Status.Planted, it.Status.Selector = d.Status.ReadyReplicas, "garden="+it.Name
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Growing", ObservedGeneration: it.Generation}
	if d.Status.ReadyReplicas == it.Spec.Beds {
		c.Status, c.Reason = metav1.ConditionTrue, "Grown"
	}
	meta.SetStatusCondition(&it.Status.Conditions, c)
	return client.IgnoreNotFound(g.client.Status().Patch(ctx, it, client.MergeFrom(before)))
}

// rules are those of the webhooks.
type rules struct{}

var (
	_ admission.Defaulter[*Garden] = rules{}
	_ admission.Validator[*Garden] = rules{}
)

// Default says whose a garden is that says nothing.
func (rules) Default(ctx context.Context, g *Garden) error {
	if g.Spec.Owner == "" {
		req, err := admission.RequestFromContext(ctx)
		if err != nil {
			return err
		}
		g.Spec.Owner = req.UserInfo.Username
	}
	return nil
}

// ValidateCreate refuses what is too large, and warns of what is empty.
func (rules) ValidateCreate(_ context.Context, g *Garden) (admission.Warnings, error) {
	if g.Spec.Beds > 20 {
		return nil, fmt.Errorf("spec.beds: %d are more than 20", g.Spec.Beds)
	}
	if g.Spec.Beds == 0 {
		return admission.Warnings{"a garden without beds"}, nil
	}
	return nil, nil
}

// ValidateUpdate is the same, and owners stay.
func (r rules) ValidateUpdate(ctx context.Context, before, g *Garden) (admission.Warnings, error) {
	if before.Spec.Owner != g.Spec.Owner {
		return nil, errors.New("spec.owner: stays")
	}
	return r.ValidateCreate(ctx, g)
}

// ValidateDelete refuses to let go of a garden that is kept.
func (rules) ValidateDelete(_ context.Context, g *Garden) (admission.Warnings, error) {
	if g.Labels["keep"] != "" {
		return nil, errors.New("it is kept")
	}
	return nil, nil
}
