package deployment

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/workload"
)

const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
)

// longestHistory is how many characters of earlier revision numbers a set
// keeps: one that is rolled back to again and again stays small.
const longestHistory = 2000

// ownAnnotations are not copied between a Deployment and its sets.
var ownAnnotations = []string{
	corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation,
	desiredAnnotation, maxAnnotation, appsv1.DeprecatedRollbackTo,
}

// newRollout sorts the sets of a Deployment into the new one and the old ones.
func newRollout(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *rollout {
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	r := &rollout{d: d}
	for _, rs := range sets {
		if r.new == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			r.new = rs
		} else {
			r.old = append(r.old, rs)
		}
	}
	return r
}

// sameTemplate compares templates but for the hash label that sets add.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		return t
	}
	bare := *t
	bare.Labels = maps.Clone(t.Labels)
	delete(bare.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &bare
}

// revisionOf is the number of a set's revision; 0 if it has none.
func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nextRevision is one more than the highest revision among the old sets.
func (r *rollout) nextRevision() int64 {
	var highest int64
	for _, rs := range r.old {
		highest = max(highest, revisionOf(rs))
	}
	return highest + 1
}

// newSet is the set that the present template needs.
func (r *rollout) newSet() (*appsv1.ReplicaSet, error) {
	d := r.d
	hash, err := workload.TemplateHash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withLabel(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withLabel(selector.MatchLabels, hash)
	replicas := r.newSize(0)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Namespace: d.Namespace, Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(d, apps.Deployments.Def)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: template,
		},
	}
	rs.Annotations = copiedAnnotations(d, nil)
	rs.Annotations[revisionAnnotation] = strconv.FormatInt(r.nextRevision(), 10)
	annotateSize(rs, d)
	return rs, nil
}

func withLabel(labels map[string]string, hash string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return labels
}

// copiedAnnotations are a Deployment's annotations as its set carries them, on
// top of what the set has already.
func copiedAnnotations(d *appsv1.Deployment, has map[string]string) map[string]string {
	out := maps.Clone(has)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range d.Annotations {
		if !slices.Contains(ownAnnotations, k) {
			out[k] = v
		}
	}
	return out
}

// rolledBack are the annotations of a Deployment that returns to a revision: those
// of the revision (its change cause above all) in place of its present ones.
func rolledBack(has, revision map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range ownAnnotations {
		if v, ok := has[key]; ok {
			out[key] = v
		}
	}
	for k, v := range revision {
		if !slices.Contains(ownAnnotations, k) {
			out[k] = v
		}
	}
	return out
}

// longerHistory adds a revision to a list of them; the oldest give way.
func longerHistory(history, revision string) string {
	if history == "" {
		return revision
	}
	history += "," + revision
	for len(history) > longestHistory {
		_, history, _ = strings.Cut(history, ",")
	}
	return history
}

// annotateSize notes for which size of the Deployment a set was sized.
func annotateSize(rs *appsv1.ReplicaSet, d *appsv1.Deployment) {
	surge, _ := limits(d)
	rs.Annotations[desiredAnnotation] = strconv.Itoa(int(*d.Spec.Replicas))
	rs.Annotations[maxAnnotation] = strconv.Itoa(int(*d.Spec.Replicas + surge))
}

// refreshed returns the new set as it should be: with the next revision number
// if it was an old set that is rolled back to, the Deployment's annotations and
// minReadySeconds. It returns nil if nothing has to change.
func (r *rollout) refreshed() *appsv1.ReplicaSet {
	rs := r.new.DeepCopy()
	rs.Annotations = copiedAnnotations(r.d, rs.Annotations)
	if had, next := revisionOf(r.new), r.nextRevision(); had < next {
		rs.Annotations[revisionAnnotation] = strconv.FormatInt(next, 10)
		if had > 0 {
			rs.Annotations[historyAnnotation] = longerHistory(rs.Annotations[historyAnnotation], strconv.FormatInt(had, 10))
		}
	}
	rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
	if equality.Semantic.DeepEqual(rs, r.new) {
		return nil
	}
	return rs
}

// expired are the old sets that the history limit lets go: empty ones, lowest
// revisions first.
func (r *rollout) expired() []*appsv1.ReplicaSet {
	if r.d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(r.old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	excess := len(alive) - int(*r.d.Spec.RevisionHistoryLimit)
	if excess <= 0 {
		return nil
	}
	slices.SortStableFunc(alive, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	return slices.DeleteFunc(alive[:excess], func(rs *appsv1.ReplicaSet) bool {
		return rs.Status.Replicas != 0 || *rs.Spec.Replicas != 0 || rs.Generation > rs.Status.ObservedGeneration
	})
}
