package serviceaccount

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// Of the volume by which a pod gets its service account's token.
const (
	tokenVolume    = "kube-api-access-"
	tokenMountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is an hour and a little: it marks tokens that agents ask for.
	tokenSeconds = 3607
)

// defaultAccountWait is how long a pod waits for the default service account of
// its namespace, which a controller makes a moment after the namespace.
const defaultAccountWait = time.Second

// New gives every pod a service account, which must exist, and its token.
func New(o *admission.Options) admission.Plugin {
	accounts := admission.Reader(o, core.ServiceAccounts)
	return admission.Plugin{
		Name: "ServiceAccount",
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			if !a.Is(core.Pods.Def, "", admission.Create) {
				return nil
			}
			pod, ok := a.Object.(*corev1.Pod)
			if !ok || core.IsMirror(pod) {
				return nil
			}
			if pod.Spec.ServiceAccountName == "" {
				pod.Spec.ServiceAccountName = "default"
			}
			sa, err := findAccount(ctx, o, accounts, a.Namespace, pod.Spec.ServiceAccountName)
			if err != nil {
				return a.Forbid("error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err)
			}
			if mountsToken(pod, sa) {
				mountToken(pod, sa)
			}
			if len(pod.Spec.ImagePullSecrets) == 0 {
				pod.Spec.ImagePullSecrets = slices.Clone(sa.ImagePullSecrets)
			}
			return nil
		},
		Validate: func(_ context.Context, a *admission.Attributes) error {
			created := a.Is(core.Pods.Def, "", admission.Create)
			if !created && !a.Is(core.Pods.Def, "ephemeralcontainers", admission.Update) {
				return nil
			}
			pod, ok := a.Object.(*corev1.Pod)
			if !ok {
				return nil
			}
			if core.IsMirror(pod) {
				if created {
					return checkMirror(a, pod)
				}
				return nil
			}
			sa, ok := accounts.Get(a.Namespace, pod.Spec.ServiceAccountName)
			if !ok || !core.LimitsSecrets(sa) {
				return nil
			}
			if err := checkSecrets(sa, pod); err != nil {
				return a.Forbid("%w", err)
			}
			return nil
		},
	}
}

// checkMirror refuses what a mirror pod cannot have: it runs from a file on its
// node already, without the API.
func checkMirror(a *admission.Attributes, p *corev1.Pod) error {
	for ref := range core.References(p) {
		switch ref.Kind {
		case core.ToServiceAccount:
			return a.Forbid("a mirror pod may not reference service accounts")
		case core.ToSecret:
			return a.Forbid("a mirror pod may not reference secrets")
		case core.ToToken:
			return a.Forbid("a mirror pod may not use ServiceAccountToken volume projections")
		}
	}
	return nil
}

func findAccount(ctx context.Context, o *admission.Options, accounts client.Reader[*corev1.ServiceAccount], namespace, name string) (*corev1.ServiceAccount, error) {
	sa, ok, err := admission.Find(ctx, o, accounts, namespace, name)
	if err == nil && !ok && name == "default" {
		sa, ok = awaitAccount(ctx, accounts, namespace, name)
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
	}
	return sa, nil
}

// awaitAccount waits for an account that is about to be made.
func awaitAccount(ctx context.Context, accounts client.Reader[*corev1.ServiceAccount], namespace, name string) (sa *corev1.ServiceAccount, ok bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, defaultAccountWait, fmt.Errorf("no service account %s/%s within %s", namespace, name, defaultAccountWait))
	defer cancel()
	found := fmt.Errorf("found service account %s/%s", namespace, name)
	// Whatever ends the watch, the answer is what there is.
	_ = accounts.Each(ctx, cache.FollowOptions{Namespace: namespace}, func([]cache.Delta) error {
		if sa, ok = accounts.Get(namespace, name); ok {
			return found
		}
		return nil
	})
	return sa, ok
}

func mountsToken(p *corev1.Pod, sa *corev1.ServiceAccount) bool {
	switch {
	case p.Spec.AutomountServiceAccountToken != nil:
		return *p.Spec.AutomountServiceAccountToken
	case sa.AutomountServiceAccountToken != nil:
		return *sa.AutomountServiceAccountToken
	}
	return true
}

// mountToken gives all containers that have nothing at the usual place a mount
// of the token, and the pod the volume for it if one needs it. All pods of one
// account get the same name for it, so that pods of one template have equal
// specs, which caches keep once.
func mountToken(p *corev1.Pod, sa *corev1.ServiceAccount) {
	name := ""
	for i := range p.Spec.Volumes {
		if strings.HasPrefix(p.Spec.Volumes[i].Name, tokenVolume) {
			name = p.Spec.Volumes[i].Name
		}
	}
	fresh := name == ""
	if fresh {
		name = tokenVolume + tokenSuffix(sa)
	}
	used := false
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenMountPath }) {
				continue
			}
			c.VolumeMounts = append(slices.Clip(c.VolumeMounts), corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
			used = true
		}
	}
	if fresh && used {
		p.Spec.Volumes = append(slices.Clip(p.Spec.Volumes), corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSources()},
		})
	}
}

// tokenSuffix is five letters and digits that belong to an account.
func tokenSuffix(sa *corev1.ServiceAccount) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(sa.UID)) // it never fails
	return utilrand.SafeEncodeString(fmt.Sprintf("%05d", h.Sum32()%100_000))
}

// tokenSources are the three files of the volume: the token, the cluster's
// certificate authority and the pod's namespace. Objects have their defaults when
// admission sees them, so the volume says all of its own.
func tokenSources() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
