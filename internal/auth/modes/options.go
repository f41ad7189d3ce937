package modes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Types of authorizers.
const (
	Node        = "Node"
	RBAC        = "RBAC"
	Webhook     = "Webhook"
	ABAC        = "ABAC"
	AlwaysAllow = "AlwaysAllow"
	AlwaysDeny  = "AlwaysDeny"
)

// types are those that there are, in the order in which refusals list them.
var types = []string{ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook}

// Options say who decides; each field is the flag that is named. The zero value is nodes and
// roles; others start from [Defaults].
type Options struct {
	Modes      []string // --authorization-mode, in the order in which they are asked; none: Node, RBAC
	PolicyFile string   // --authorization-policy-file, of ABAC
	Webhook    WebhookOptions
	ConfigFile string // --authorization-config, in place of the modes and the webhook
}

// WebhookOptions configure the webhook that is not in an AuthorizationConfiguration.
type WebhookOptions struct {
	ConfigFile string        // --authorization-webhook-config-file: a kubeconfig
	Version    string        // --authorization-webhook-version, of SubjectAccessReviews
	Allowed    time.Duration // --authorization-webhook-cache-authorized-ttl; 0: nothing is remembered
	Refused    time.Duration // --authorization-webhook-cache-unauthorized-ttl; 0: nothing is remembered
}

// Defaults are the options of who says nothing.
func Defaults() Options {
	return Options{Webhook: WebhookOptions{Version: "v1beta1", Allowed: allowedFor, Refused: refusedFor}}
}

const (
	allowedFor = 5 * time.Minute
	refusedFor = 30 * time.Second
)

// modes are those that are asked.
func (o *Options) modes() []string {
	if len(o.Modes) == 0 {
		return []string{Node, RBAC}
	}
	return o.Modes
}

// Check says what is wrong with the options, the files that they name included. It fills in what a
// webhook is not told.
func (o *Options) Check() error {
	if o.Webhook == (WebhookOptions{}) {
		o.Webhook = Defaults().Webhook
	}
	if err := o.checkFlags(); err != nil {
		return err
	}
	_, err := o.load()
	return err
}

func (o *Options) checkFlags() error {
	w := &o.Webhook
	if o.ConfigFile != "" {
		if len(o.Modes) > 0 || *w != Defaults().Webhook {
			return errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
		}
		return nil
	}
	modes := o.modes()
	for i, mode := range modes {
		switch {
		case !slices.Contains(types, mode):
			return fmt.Errorf("--authorization-mode: authorization-mode %q is not a valid mode; there are %s", mode, strings.Join(types, ", "))
		case slices.Contains(modes[:i], mode):
			return fmt.Errorf("--authorization-mode: authorization-mode %q has mode specified more than once", modes)
		}
	}
	abac, webhook := slices.Contains(modes, ABAC), slices.Contains(modes, Webhook)
	switch {
	case abac && o.PolicyFile == "":
		return errors.New("--authorization-policy-file: authorization-mode ABAC's authorization policy file not passed")
	case !abac && o.PolicyFile != "":
		return errors.New("cannot specify --authorization-policy-file without mode ABAC")
	case webhook && w.ConfigFile == "":
		return errors.New("--authorization-webhook-config-file: authorization-mode Webhook's authorization config file not passed")
	case !webhook && w.ConfigFile != "":
		return errors.New("cannot specify --authorization-webhook-config-file without mode Webhook")
	case w.Version != "v1" && w.Version != "v1beta1":
		return fmt.Errorf("--authorization-webhook-version: unsupported webhook authorizer version %q, supported versions are \"v1\", \"v1beta1\"", w.Version)
	case w.Allowed < 0:
		return errors.New("--authorization-webhook-cache-authorized-ttl must not be negative")
	case w.Refused < 0:
		return errors.New("--authorization-webhook-cache-unauthorized-ttl must not be negative")
	}
	return nil
}
