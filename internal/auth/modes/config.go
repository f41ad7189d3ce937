package modes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"github.com/kemudi/kemudi/internal/auth/abac"
	"github.com/kemudi/kemudi/internal/auth/webhook"
	"github.com/kemudi/kemudi/internal/hook"
)

// config is who decides, and what was read for it.
type config struct {
	authorizers []apiserver.AuthorizerConfiguration
	policies    abac.Policies
	data        []byte // of the file; nil: there is none
}

// load reads the files that the options name.
func (o *Options) load() (*config, error) {
	c := &config{authorizers: o.fromFlags()}
	if o.ConfigFile != "" {
		data, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--authorization-config: %w", err)
		}
		if c.authorizers, err = parse(data); err != nil {
			return nil, fmt.Errorf("--authorization-config: %s: %w", o.ConfigFile, err)
		}
		c.data = data
		switch abac := slices.Contains(c.types(), ABAC); {
		case abac && o.PolicyFile == "":
			return nil, errors.New("--authorization-policy-file: want the file of policies, as --authorization-config has an authorizer of type ABAC")
		case !abac && o.PolicyFile != "":
			return nil, errors.New("cannot specify --authorization-policy-file without mode ABAC")
		}
	}
	var err error
	if o.PolicyFile != "" {
		if c.policies, err = abac.Read(o.PolicyFile); err != nil {
			return nil, fmt.Errorf("--authorization-policy-file: %w", err)
		}
	}
	return c, o.openable(c)
}

// openable refuses webhooks whose kubeconfigs cannot be read.
func (o *Options) openable(c *config) error {
	for i := range c.authorizers {
		w := c.authorizers[i].Webhook
		if w == nil {
			continue
		}
		r, err := hook.OpenRemote(hook.RemoteOptions{Kubeconfig: *w.ConnectionInfo.KubeConfigFile})
		switch {
		case err == nil:
			r.Close()
		case o.ConfigFile == "":
			return fmt.Errorf("--authorization-webhook-config-file: %w", err)
		default:
			return fmt.Errorf("--authorization-config: authorizers[%d].webhook.connectionInfo.kubeConfigFile: %w", i, err)
		}
	}
	return nil
}

// fromFlags are the authorizers of the modes.
func (o *Options) fromFlags() (list []apiserver.AuthorizerConfiguration) {
	for _, mode := range o.modes() {
		a := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)}
		if mode == Webhook {
			w := &o.Webhook
			a.Name = "default"
			a.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: w.Allowed}, CacheAuthorizedRequests: true,
				UnauthorizedTTL: metav1.Duration{Duration: w.Refused}, CacheUnauthorizedRequests: true,
				Timeout: metav1.Duration{Duration: 30 * time.Second}, FailurePolicy: apiserver.FailurePolicyNoOpinion,
				SubjectAccessReviewVersion: w.Version, ConnectionInfo: apiserver.WebhookConnectionInfo{
					Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &w.ConfigFile,
				},
			}
		}
		list = append(list, a)
	}
	return list
}

// compiler compiles match conditions. Its environment takes megabytes: it is made when there is a file.
var compiler = sync.OnceValue(authorizationcel.NewDefaultCompiler)

// parse reads an AuthorizationConfiguration.
func parse(data []byte) ([]apiserver.AuthorizerConfiguration, error) {
	if len(data) == 0 {
		return nil, errors.New("the file is empty; want an apiserver.config.k8s.io/v1 AuthorizationConfiguration")
	}
	c, err := load.LoadFromData(data)
	if err != nil {
		return nil, err
	}
	errs := validation.ValidateAuthorizationConfiguration(compiler(), nil, c, sets.New(types...), sets.New(string(apiserver.TypeWebhook)))
	errs = append(errs, checkHere(c)...)
	return c.Authorizers, errs.ToAggregate()
}

// checkHere refuses what only other servers may have: the API server's own review as the webhook, and
// names of types other than the one by which metrics know them.
func checkHere(c *apiserver.AuthorizationConfiguration) (errs field.ErrorList) {
	for i := range c.Authorizers {
		a, at := &c.Authorizers[i], field.NewPath("authorizers").Index(i)
		if w := a.Webhook; w != nil && w.ConnectionInfo.Type == apiserver.AuthorizationWebhookConnectionInfoTypeInCluster {
			errs = append(errs, field.Invalid(at.Child("webhook", "connectionInfo", "type"), w.ConnectionInfo.Type, "is for servers that ask this one: the API server would ask itself; want KubeConfigFile"))
		}
		if want := strings.ToLower(string(a.Type)); a.Type != apiserver.TypeWebhook && a.Name != "" && a.Name != want {
			errs = append(errs, field.Invalid(at.Child("name"), a.Name, fmt.Sprintf("expected name %s for authorizer %s instead of %s", want, a.Type, a.Name)))
		}
	}
	return errs
}

// types are those that decide.
func (c *config) types() (list []string) {
	for i := range c.authorizers {
		list = append(list, string(c.authorizers[i].Type))
	}
	return list
}

// lasting are those that only a start changes (M4), in order.
func (c *config) lasting() []string {
	list := slices.DeleteFunc(c.types(), func(t string) bool { return t == Webhook })
	slices.Sort(list)
	return list
}

// open makes a webhook ready to be asked.
func (a *Authorizer) open(c *apiserver.AuthorizerConfiguration) (*webhook.Authorizer, error) {
	w := c.Webhook
	remote, err := hook.OpenRemote(hook.RemoteOptions{Kubeconfig: *w.ConnectionInfo.KubeConfigFile, Timeout: w.Timeout.Duration, Agent: "kube-apiserver", Dial: a.b.Dial})
	if err != nil {
		return nil, err
	}
	o := webhook.Options{
		Name: c.Name, Remote: remote, Version: w.SubjectAccessReviewVersion, Allowed: w.AuthorizedTTL.Duration, Refused: w.UnauthorizedTTL.Duration,
		OnError: authorizer.DecisionNoOpinion, Metrics: a.metrics.webhooks(), Logger: a.b.Logger,
	}
	if !w.CacheAuthorizedRequests {
		o.Allowed = 0
	}
	if !w.CacheUnauthorizedRequests {
		o.Refused = 0
	}
	if w.FailurePolicy == apiserver.FailurePolicyDeny {
		o.OnError = authorizer.DecisionDeny
	}
	if len(w.MatchConditions) > 0 {
		match, errs := validation.ValidateAndCompileMatchConditions(compiler(), w.MatchConditions)
		if err := errs.ToAggregate(); err != nil {
			return nil, err
		}
		o.Match = match
	}
	return webhook.New(o), nil
}
