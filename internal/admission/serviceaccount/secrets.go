package serviceaccount

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// checkSecrets refuses secrets that an account does not name, of a pod whose account says that its pods have
// no others.
func checkSecrets(sa *corev1.ServiceAccount, p *corev1.Pod) error {
	may := func(name string) bool {
		return slices.ContainsFunc(sa.Secrets, func(r corev1.ObjectReference) bool { return r.Name == name })
	}
	for i := range p.Spec.Volumes {
		for _, name := range mounted(&p.Spec.Volumes[i]) {
			if !may(name) {
				return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", name, sa.Name)
			}
		}
	}
	for kind, containers := range everyEnvironment(&p.Spec) {
		for _, c := range containers {
			for _, e := range c.env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !may(e.ValueFrom.SecretKeyRef.Name) {
					return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret", kind, c.name, e.Name, e.ValueFrom.SecretKeyRef.Name, sa.Name)
				}
			}
			for _, from := range c.from {
				if from.SecretRef != nil && !may(from.SecretRef.Name) {
					return fmt.Errorf("%s %s with envFrom referencing secret.secretName=%q is not allowed because service account %s does not reference that secret", kind, c.name, from.SecretRef.Name, sa.Name)
				}
			}
		}
	}
	for i, ref := range p.Spec.ImagePullSecrets {
		if !slices.Contains(sa.ImagePullSecrets, ref) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, ref.Name, sa.Name)
		}
	}
	return nil
}

// mounted are the secrets of a volume.
func mounted(v *corev1.Volume) (names []string) {
	if v.Secret != nil {
		names = append(names, v.Secret.SecretName)
	}
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				names = append(names, s.Secret.Name)
			}
		}
	}
	return names
}

// environment is what the variables of a container are made of.
type environment struct {
	name string
	env  []corev1.EnvVar
	from []corev1.EnvFromSource
}

// everyEnvironment yields those of a pod's containers, by what errors call them.
func everyEnvironment(s *corev1.PodSpec) func(yield func(kind string, all []environment) bool) {
	of := func(containers []corev1.Container) (all []environment) {
		for i := range containers {
			all = append(all, environment{containers[i].Name, containers[i].Env, containers[i].EnvFrom})
		}
		return all
	}
	return func(yield func(string, []environment) bool) {
		if !yield("init container", of(s.InitContainers)) || !yield("container", of(s.Containers)) {
			return
		}
		var all []environment
		for i := range s.EphemeralContainers {
			all = append(all, environment{s.EphemeralContainers[i].Name, s.EphemeralContainers[i].Env, s.EphemeralContainers[i].EnvFrom})
		}
		yield("ephemeral container", all)
	}
}
