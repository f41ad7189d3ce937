package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"
)

// Verification says for which of the node's images a pod must prove that it has credentials to pull them, although no
// pull is needed (KEP-2535). The zero value: for those that the agent itself has pulled.
type Verification struct {
	// Policy is one of upstream's ImagePullCredentialsVerificationPolicy.
	Policy string
	// Allowed are the images that policy NeverVerifyAllowlistedImages leaves out: names without tag or digest, or
	// their beginnings with /* behind them.
	Allowed []string
}

// check refuses what is no policy, and what is no image.
func (v Verification) check() error {
	policies := []config.ImagePullCredentialsVerificationPolicy{
		"", config.NeverVerify, config.NeverVerifyPreloadedImages, config.NeverVerifyAllowlistedImages, config.AlwaysVerify,
	}
	if !slices.Contains(policies, config.ImagePullCredentialsVerificationPolicy(v.Policy)) {
		return fmt.Errorf("--image-pull-credentials-verification-policy %s: want NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify", v.Policy)
	}
	if len(v.Allowed) > 0 && v.Policy != string(config.NeverVerifyAllowlistedImages) {
		return errors.New("--preloaded-images-verification-allowlist: has a meaning with --image-pull-credentials-verification-policy=NeverVerifyAllowlistedImages alone")
	}
	for _, pattern := range v.Allowed {
		prefix, wild := strings.CutSuffix(pattern, "/*")
		named, err := reference.ParseNormalizedNamed(prefix)
		switch {
		case wild && prefix != "" && !strings.ContainsAny(prefix, "* "):
		case wild || strings.Contains(prefix, "*"):
			return fmt.Errorf("--preloaded-images-verification-allowlist: %q: want the name of an image, or its beginning with /*", pattern)
		case err != nil:
			return fmt.Errorf("--preloaded-images-verification-allowlist: %q: %w", pattern, err)
		case named.Name() != prefix:
			return fmt.Errorf("--preloaded-images-verification-allowlist: %q: want the whole name, without tag and digest: %s", pattern, named.Name())
		}
	}
	return nil
}

// needed reports whether a pod must show that it could pull the image; pulled says that an agent has pulled it.
func (v Verification) needed(image string, pulled bool) bool {
	switch config.ImagePullCredentialsVerificationPolicy(v.Policy) {
	case config.NeverVerify:
		return false
	case config.AlwaysVerify:
		return true
	case config.NeverVerifyAllowlistedImages:
		name := repository(image)
		return !slices.ContainsFunc(v.Allowed, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "*")
			return wild && strings.HasPrefix(name, prefix) || name == pattern
		})
	}
	return pulled
}

// used is what a pull by these credentials shows.
func (c Credential) used() config.ImagePullCredentials {
	switch {
	case c.Secret != nil:
		return config.ImagePullCredentials{KubernetesSecrets: []config.ImagePullSecret{*c.Secret}}
	case c.Once:
		return config.ImagePullCredentials{} // who else may have it has to pull
	case c.Account != nil:
		return config.ImagePullCredentials{KubernetesServiceAccounts: []config.ImagePullServiceAccount{*c.Account}}
	}
	return config.ImagePullCredentials{NodePodsAccessible: true}
}

// mayUse reports whether a pod may have an image that is there without a pull: nobody gets at an image
// only because another pod that may have it runs here.
func (p *Puller) mayUse(ctx context.Context, r Request, name string, im *runtimeapi.Image) bool {
	used, pulled, err := p.records.of(name, im)
	switch {
	case !p.verify.needed(name, pulled):
		p.metrics.mayUse(freeForAll)
		return true
	case err != nil:
		p.metrics.mayUse(unreadable)
		return false
	case p.proves(ctx, r, name, im, used):
		p.metrics.mayUse(provedToBe)
		return true
	}
	p.metrics.mayUse(mustProve)
	return false
}

// proves reports whether the pod could have pulled the image by credentials that are known to be good for it.
func (p *Puller) proves(ctx context.Context, r Request, name string, im *runtimeapi.Image, used config.ImagePullCredentials) bool {
	switch {
	case used.NodePodsAccessible:
		return true
	case r.isOneOf(ctx, used.KubernetesServiceAccounts):
		return true
	case len(used.KubernetesSecrets) == 0 || r.Secrets == nil:
		return false
	}
	for _, own := range r.Secrets().Lookup(name) {
		for _, known := range used.KubernetesSecrets {
			hashed := known.CredentialHash != "" && known.CredentialHash == own.Secret.CredentialHash
			if same := sameSecret(&known, own.Secret); !hashed && !same {
				continue
			} else if !(hashed && same) && len(used.KubernetesSecrets) < mostSecrets {
				_ = p.records.add(name, im.Id, own.used()) // else it is found out again
			}
			return true
		}
	}
	return false
}

// isOneOf reports whether the pod's service account is among those for which an image was pulled.
func (r *Request) isOneOf(ctx context.Context, accounts []config.ImagePullServiceAccount) bool {
	if len(accounts) == 0 || r.Account == nil {
		return false
	}
	sa, err := r.Account.Get(ctx)
	return err == nil && slices.Contains(accounts, *accountOf(sa)) // else it pulls
}
