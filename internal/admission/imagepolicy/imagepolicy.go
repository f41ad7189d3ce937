package imagepolicy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/hook"
)

// maxAnswers and maxReason bound what is remembered, to 4 MiB.
const (
	maxAnswers = 1024
	maxReason  = 4 << 10
)

// Keys of what the audit log is told: how they begin, and that pods were let in without an answer.
const (
	auditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	failedOpen  = "failed-open"
)

// kind is that of questions and answers.
var kind = metav1.TypeMeta{APIVersion: imagepolicyv1alpha1.SchemeGroupVersion.String(), Kind: "ImageReview"}

// plugin asks about images.
type plugin struct {
	remote      *hook.Remote
	allow, deny time.Duration
	open        bool
	answers     *cache.LRUExpireCache
}

// New asks the webhook of its configuration, which it must have.
func New(o *admission.Options) (admission.Plugin, error) {
	p := &plugin{answers: cache.NewLRUExpireCache(maxAnswers)}
	is := admission.Plugin{Name: "ImagePolicyWebhook", Validate: p.validate}
	var c configuration
	if err := o.Config.Read(is.Name, &c); err != nil {
		return is, err
	}
	if c.ImagePolicy == nil || c.ImagePolicy.KubeConfigFile == "" {
		return is, admission.Misconfigured(is.Name, errNoConfiguration)
	}
	var retry time.Duration
	var err error
	if p.allow, p.deny, retry, err = c.ImagePolicy.times(); err != nil {
		return is, admission.Misconfigured(is.Name, err)
	}
	p.open = c.ImagePolicy.DefaultAllow
	p.remote, err = hook.OpenRemote(hook.RemoteOptions{Kubeconfig: c.ImagePolicy.KubeConfigFile, Backoff: max(retry, 1), Agent: "kube-apiserver-admission"})
	if err != nil {
		return is, admission.Misconfigured(is.Name, fmt.Errorf("imagePolicy.kubeConfigFile: %w", err))
	}
	return is, nil
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Def != core.Pods.Def || a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	spec := imagepolicyv1alpha1.ImageReviewSpec{Annotations: map[string]string{}, Namespace: a.Namespace}
	switch a.Sub {
	case "":
		for i := range pod.Spec.Containers {
			spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: pod.Spec.Containers[i].Image})
		}
		for i := range pod.Spec.InitContainers {
			spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: pod.Spec.InitContainers[i].Image})
		}
	case "ephemeralcontainers":
		for i := range pod.Spec.EphemeralContainers {
			spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: pod.Spec.EphemeralContainers[i].Image})
		}
	default:
		return nil
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, ".image-policy.k8s.io/") {
			spec.Annotations[key] = value
		}
	}
	status, err := p.ask(ctx, &spec)
	if err != nil {
		if p.open {
			a.Audit.Annotate(auditPrefix+failedOpen, "true")
			return nil
		}
		return a.Forbid("%w", err)
	}
	for key, value := range status.AuditAnnotations {
		a.Audit.Annotate(auditPrefix+key, value)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return a.Forbid("image policy webhook backend denied one or more images: %s", status.Reason)
	}
	return a.Forbid("one or more images rejected by webhook backend")
}

// ask returns the webhook's answer, or an earlier one that still holds.
func (p *plugin) ask(ctx context.Context, spec *imagepolicyv1alpha1.ImageReviewSpec) (status imagepolicyv1alpha1.ImageReviewStatus, _ error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return status, fmt.Errorf("write the question: %w", err)
	}
	key := sha256.Sum256(text)
	if known, ok := p.answers.Get(key); ok {
		return known.(imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	var got imagepolicyv1alpha1.ImageReview
	if err := p.remote.Post(ctx, &imagepolicyv1alpha1.ImageReview{TypeMeta: kind, Spec: *spec}, &got, nil); err != nil {
		return status, err
	}
	if err := hook.CheckKind(got.TypeMeta, kind); err != nil {
		return status, err
	}
	keep := p.deny
	if got.Status.Allowed {
		keep = p.allow
	}
	size := len(got.Status.Reason)
	for k, v := range got.Status.AuditAnnotations {
		size += len(k) + len(v)
	}
	if keep > 0 && size <= maxReason {
		p.answers.Add(key, got.Status, keep)
	}
	return got.Status, nil
}
