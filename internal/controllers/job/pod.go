package job

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/workload"
)

// indexVariable tells containers their completion index.
const indexVariable = "JOB_COMPLETION_INDEX"

// maxBase is how much of a generated name is not random.
const maxBase = 58

// pod makes a pod of the job.
func (v *view) pod(n newPod) *corev1.Pod {
	p := workload.PodFromTemplate(&v.job.Spec.Template, v.job, batch.Jobs.Def)
	if !tracked(p) {
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer) // J1
	}
	if n.index == noIndex {
		return p
	}
	index := strconv.Itoa(int(n.index))
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[batchv1.JobCompletionIndexAnnotation] = index
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[batchv1.JobCompletionIndexAnnotation] = index
	p.Spec.Hostname = v.job.Name + "-" + index
	p.GenerateName = v.job.Name[:min(len(v.job.Name), maxBase-len(index)-2)] + "-" + index + "-"
	setIndexVariable(p.Spec.InitContainers)
	setIndexVariable(p.Spec.Containers)
	if v.perIndex() {
		v.countFailures(p, n.failed)
	}
	return p
}

// setIndexVariable leaves alone a variable that the template sets itself.
func setIndexVariable(containers []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['batch.kubernetes.io/job-completion-index']"},
			}})
		}
	}
}

// countFailures lets a pod take over the failures of the one that it replaces.
func (v *view) countFailures(p, failed *corev1.Pod) {
	var ignored, counted int32
	if failed != nil {
		all, before := failures(failed)
		ignored, counted = all-before, before
		if v.matchFailure(failed).counts {
			counted++
		} else {
			ignored++
		}
	}
	p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(int(counted))
	if ignored > 0 {
		p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(int(ignored))
	}
}
