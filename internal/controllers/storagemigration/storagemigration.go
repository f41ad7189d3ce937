// Package storagemigration writes all objects of a resource anew when a
// StorageVersionMigration asks for it: in the version, form and encryption in which they
// are stored today. What a migration is, is in internal/api/storagemigration.
package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/storagemigration"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Reasons of the conditions.
const (
	running   = "StorageVersionMigrationInProgress"
	succeeded = "StorageVersionMigrationSucceeded"
	failed    = "StorageVersionMigrationFailed"
)

// New returns the controller over all resources of the server.
func New(kinds controller.Kinds) *controller.Controller {
	return controller.New(controller.Spec[*migrationv1.StorageVersionMigration]{
		Name:   "storage-version-migrator-controller",
		For:    storagemigration.StorageVersionMigrations,
		Writes: []controller.Permission{controller.UpdateStatus(storagemigration.StorageVersionMigrations.Def)},
		Rules:  []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "patch"}}},
		Setup: func(k *controller.Kit) controller.Reconciler[*migrationv1.StorageVersionMigration] {
			return &reconciler{kinds: kinds, t: k.Transport(), migrations: controller.For(k, storagemigration.StorageVersionMigrations)}
		},
	})
}

type reconciler struct {
	kinds      controller.Kinds
	t          client.Transport
	migrations controller.Client[*migrationv1.StorageVersionMigration]
}

// Reconcile notes up to which revision objects are to be written, and then writes them. One that
// was written since is left alone: so who is interrupted goes on where it was.
func (r *reconciler) Reconcile(ctx context.Context, m *migrationv1.StorageVersionMigration) (controller.Next, error) {
	if storagemigration.Is(m, migrationv1.MigrationSucceeded) || storagemigration.Is(m, migrationv1.MigrationFailed) || m.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	def := r.find(m.Spec.Resource)
	if def == nil {
		return controller.Done, r.end(ctx, m, migrationv1.MigrationFailed, fmt.Sprintf("there is no stored resource %s in group %q", m.Spec.Resource.Resource, m.Spec.Resource.Group))
	}
	if m.Status.ResourceVersion == "" {
		l, err := r.t.List(ctx, &client.Request{Verb: "list", Def: def, List: metav1.ListOptions{Limit: 1}})
		if err != nil {
			return controller.Done, fmt.Errorf("read the revision of %s: %w", def, err)
		}
		m = m.DeepCopy()
		m.Status.ResourceVersion = l.ResourceVersion
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionTrue, Reason: running})
		_, err = r.migrations.UpdateStatus(ctx, m)
		return controller.Done, err // what follows has been woken by it
	}
	upTo, err := strconv.ParseInt(m.Status.ResourceVersion, 10, 64)
	if err != nil {
		return controller.Done, r.end(ctx, m, migrationv1.MigrationFailed, fmt.Sprintf("status.resourceVersion: %v", err))
	}
	if err := r.rewrite(ctx, def, upTo); err != nil {
		if isFinal(err) {
			return controller.Done, r.end(ctx, m, migrationv1.MigrationFailed, err.Error())
		}
		return controller.Done, err
	}
	return controller.Done, r.end(ctx, m, migrationv1.MigrationSucceeded, "")
}

// find is the stored resource of that name, in whichever of its groups; nil: there is none.
func (r *reconciler) find(of metav1.GroupResource) *resource.Def {
	defs, _ := r.kinds.Defs()
	for _, d := range defs {
		if !d.Stored() || d.Plural != of.Resource {
			continue
		}
		if d.Group == of.Group || slices.ContainsFunc(d.Versions, func(v resource.VersionDef) bool { return v.Group == of.Group }) {
			return d
		}
	}
	return nil
}

func (r *reconciler) rewrite(ctx context.Context, def *resource.Def, upTo int64) error {
	from := r.t.Cache(def, "")
	if from == nil {
		return nil // it has just gone
	}
	for _, it := range from.List("", nil) {
		if it.Rev > upTo {
			continue
		}
		if err := r.touch(ctx, def, it); err != nil {
			return fmt.Errorf("write %s %s anew: %w", def, it.Key, err)
		}
	}
	return nil
}

// touch writes an object as it is. Who has changed or removed it meanwhile has done that already.
func (r *reconciler) touch(ctx context.Context, def *resource.Def, it *cache.Item) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": it.Object.GetUID(), "resourceVersion": strconv.FormatInt(it.Rev, 10)}})
	if err != nil {
		return err
	}
	_, err = r.t.Do(ctx, &client.Request{
		Verb: "patch", Def: def, Namespace: it.Object.GetNamespace(), Name: it.Object.GetName(),
		Patch: patch, PatchType: types.MergePatchType, FieldManager: storagemigration.Manager,
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// isFinal reports an error that does not go away by trying again.
func isFinal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

func (r *reconciler) end(ctx context.Context, m *migrationv1.StorageVersionMigration, how migrationv1.MigrationConditionType, message string) error {
	m = m.DeepCopy()
	reason := succeeded
	if how == migrationv1.MigrationFailed {
		reason = failed
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionFalse, Reason: reason})
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(how), Status: metav1.ConditionTrue, Reason: reason, Message: message})
	_, err := r.migrations.UpdateStatus(ctx, m)
	return err
}
