// Package storagemigration writes all objects of a resource anew when a
// StorageVersionMigration asks for it: in the version, form and encryption in which they
// are stored today. Of a resource one migration runs at a time, the oldest first; the
// CustomResourceDefinition of a custom one says that it runs, and how it ended. What a
// migration is, is in internal/api/storagemigration.
package storagemigration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
	"github.com/kemudi/kemudi/internal/api/storagemigration"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Reasons of the conditions that end a migration.
const (
	succeeded = "StorageVersionMigrationSucceeded"
	failed    = "StorageVersionMigrationFailed"
)

// New returns the controller over all resources of the server.
func New(kinds controller.Kinds) *controller.Controller {
	return controller.New(controller.Spec[*migrationv1.StorageVersionMigration]{
		Name:    "storage-version-migrator-controller",
		For:     storagemigration.StorageVersionMigrations,
		Watches: []controller.Watch{controller.Mapped(storagemigration.StorageVersionMigrations, others)},
		Writes: []controller.Permission{
			controller.UpdateStatus(storagemigration.StorageVersionMigrations.Def),
			controller.UpdateStatus(apiextensions.CustomResourceDefinitions.Def),
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "patch"}},
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*migrationv1.StorageVersionMigration] {
			return &reconciler{
				kinds: kinds, t: k.Transport(),
				migrations:  controller.For(k, storagemigration.StorageVersionMigrations),
				definitions: controller.Writer(k, apiextensions.CustomResourceDefinitions),
			}
		},
	})
}

// others are the migrations that have waited for m.
func others(k *controller.Kit, m *migrationv1.StorageVersionMigration) []string {
	var keys []string
	for _, o := range controller.For(k, storagemigration.StorageVersionMigrations).List("", nil) {
		if o.Spec.Resource == m.Spec.Resource && o.Name != m.Name {
			keys = append(keys, o.Name)
		}
	}
	return keys
}

type reconciler struct {
	kinds       controller.Kinds
	t           client.Transport
	migrations  controller.Client[*migrationv1.StorageVersionMigration]
	definitions client.Client[*apiextensionsv1.CustomResourceDefinition]
}

// Reconcile takes a migration a step further; each step is woken by what the one before has written.
func (r *reconciler) Reconcile(ctx context.Context, m *migrationv1.StorageVersionMigration) (controller.Next, error) {
	runs := storagemigration.Is(m, migrationv1.MigrationRunning)
	switch {
	case storagemigration.Ended(m) && runs:
		return controller.Done, r.close(ctx, m)
	case storagemigration.Ended(m) || m.DeletionTimestamp != nil:
		return controller.Done, nil
	case runs:
		return controller.Done, r.run(ctx, m)
	case r.hasTurn(m):
		return controller.Done, r.begin(ctx, m)
	}
	return controller.Done, nil
}

// hasTurn reports that no migration of m's resource runs, and none has waited longer.
func (r *reconciler) hasTurn(m *migrationv1.StorageVersionMigration) bool {
	for _, o := range r.migrations.List("", nil) {
		if o.Spec.Resource != m.Spec.Resource || o.Name == m.Name {
			continue
		}
		if storagemigration.Is(o, migrationv1.MigrationRunning) {
			return false
		}
		if !storagemigration.Ended(o) && o.DeletionTimestamp == nil &&
			cmp.Or(o.CreationTimestamp.Compare(m.CreationTimestamp.Time), cmp.Compare(o.Name, m.Name)) < 0 {
			return false
		}
	}
	return true
}

// begin says that m runs, and up to which revision it writes objects.
func (r *reconciler) begin(ctx context.Context, m *migrationv1.StorageVersionMigration) error {
	err := r.tellDefinition(ctx, m, func(crd *apiextensionsv1.CustomResourceDefinition) apiextensionsv1.CustomResourceDefinitionCondition {
		return apiextensionsv1.CustomResourceDefinitionCondition{
			Status: apiextensionsv1.ConditionTrue, Reason: "MigrationRunning", Message: fmt.Sprintf("Migration %s is running", m.Name),
		}
	})
	if err != nil {
		return err
	}
	m = m.DeepCopy()
	if def := r.find(m.Spec.Resource); def != nil && m.Status.ResourceVersion == "" {
		l, err := r.t.List(ctx, &client.Request{Verb: "list", Def: def, List: metav1.ListOptions{Limit: 1}})
		if err != nil {
			return fmt.Errorf("read the revision of %s: %w", def, err)
		}
		m.Status.ResourceVersion = l.ResourceVersion
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionTrue, Reason: "MigrationRunning", Message: "The migration is running",
	})
	_, err = r.migrations.UpdateStatus(ctx, m)
	return err
}

// run writes the objects. One that was written since m began is left alone: so who is
// interrupted goes on where it was.
func (r *reconciler) run(ctx context.Context, m *migrationv1.StorageVersionMigration) error {
	def := r.find(m.Spec.Resource)
	if def == nil || m.Status.ResourceVersion == "" {
		return r.end(ctx, m, migrationv1.MigrationFailed, "resource does not exist in discovery")
	}
	upTo, err := strconv.ParseInt(m.Status.ResourceVersion, 10, 64)
	if err == nil {
		err = r.rewrite(ctx, def, upTo)
	}
	switch {
	case err == nil:
		return r.end(ctx, m, migrationv1.MigrationSucceeded, "")
	case goesAway(err):
		return err
	}
	return r.end(ctx, m, migrationv1.MigrationFailed, fmt.Sprintf("migration encountered unhandled error: %v", err))
}

// close says that m, which has ended, runs no longer. Of a definition that has not changed
// since m began all objects are in the storage version now.
func (r *reconciler) close(ctx context.Context, m *migrationv1.StorageVersionMigration) error {
	err := r.tellDefinition(ctx, m, func(crd *apiextensionsv1.CustomResourceDefinition) apiextensionsv1.CustomResourceDefinitionCondition {
		began := apiextensions.Condition(crd, apiextensionsv1.StorageMigrating)
		same := began != nil && began.ObservedGeneration == crd.Generation
		c := apiextensionsv1.CustomResourceDefinitionCondition{Status: apiextensionsv1.ConditionFalse, Reason: "MigrationFailed", Message: "The migration has failed"}
		if !storagemigration.Is(m, migrationv1.MigrationSucceeded) {
			return c
		}
		c.Reason, c.Message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
		if same {
			c.Message = "The migration has succeeded and the stored versions have been updated"
			crd.Status.StoredVersions = []string{apiextensions.StorageVersion(crd)}
		}
		return c
	})
	if err != nil {
		return err
	}
	m = m.DeepCopy()
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionFalse, Reason: "MigrationCompleted", Message: "Migration completed",
		ObservedGeneration: m.Generation,
	})
	_, err = r.migrations.UpdateStatus(ctx, m)
	return err
}

// tellDefinition writes the condition StorageMigrating into the definition of m's resource, if
// it has one; say may change more of its status.
func (r *reconciler) tellDefinition(ctx context.Context, m *migrationv1.StorageVersionMigration, say func(crd *apiextensionsv1.CustomResourceDefinition) apiextensionsv1.CustomResourceDefinitionCondition) error {
	crd, err := r.definitions.Get(ctx, "", m.Spec.Resource.Resource+"."+m.Spec.Resource.Group)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	crd = crd.DeepCopy()
	c := say(crd)
	c.Type, c.ObservedGeneration = apiextensionsv1.StorageMigrating, crd.Generation
	apiextensions.SetCondition(crd, c)
	_, err = r.definitions.UpdateStatus(ctx, crd)
	return err
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
			return err
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

// goesAway reports an error that may go away by trying again.
func goesAway(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}

func (r *reconciler) end(ctx context.Context, m *migrationv1.StorageVersionMigration, how migrationv1.MigrationConditionType, message string) error {
	m = m.DeepCopy()
	reason := succeeded
	if how == migrationv1.MigrationFailed {
		reason = failed
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(how), Status: metav1.ConditionTrue, Reason: reason, Message: message})
	_, err := r.migrations.UpdateStatus(ctx, m)
	return err
}
