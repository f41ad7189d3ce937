package identity

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/oidc"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/auth/signer"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/task"
)

// With is what a server has of its own.
type With struct {
	Own      *pki.PKI // with a key for tokens, if the server has one
	URL      string   // the name of the issuer, unless another is said
	KeySet   string   // where this server publishes the keys, unless another place is said; empty: below the issuer
	Server   string   // its name, in metrics
	Egress   egress.Selection
	Registry *prometheus.Registry
	Logger   *slog.Logger // required
}

// Known is who is believed by tokens.
type Known struct {
	Issuer *authn.Issuer // of tokens of service accounts

	o       *Options
	file    *authn.TokenFile    // nil: there is none
	signer  *signer.Signer      // nil: the server signs tokens itself
	issuers *oidc.Issuers       // nil: there are none
	webhook authenticator.Token // nil: nobody is asked
	expiry  prometheus.Observer // of certificates; nil: nobody is told
}

// Open reads the files that the options name, asks who signs tokens outside, and refuses what makes no sense.
func Open(ctx context.Context, o *Options, w With) (*Known, error) {
	k := &Known{o: o}
	if w.Registry != nil {
		k.expiry = authn.NewExpiry(w.Registry)
	}
	issuer := authn.IssuerOptions{
		URL: w.URL, KeySetURL: cmp.Or(o.KeySetURL, w.KeySet), Audiences: o.Audiences, MaxLife: o.MaxLife, NoExtension: o.NoExtension,
	}
	var err error
	if o.Endpoint == "" || w.Own != nil { // tokens that are kept in secrets have the server's own key in any case
		if err = k.follow(&issuer, &keys{signing: o.SigningKey, others: o.Keys, own: w.Own, log: w.Logger}); err != nil {
			return nil, err
		}
	}
	if o.Endpoint != "" {
		if err = k.openSigner(ctx, &issuer, w); err != nil {
			return nil, fmt.Errorf("--service-account-signing-endpoint: %w", err)
		}
	}
	if len(o.Issuers) > 0 {
		issuer.URL, issuer.Others = o.Issuers[0], o.Issuers[1:]
	}
	if k.Issuer, err = authn.NewIssuer(issuer); err != nil {
		return nil, err
	}
	if o.TokenFile != "" {
		if k.file, err = authn.ReadTokenFile(o.TokenFile, w.Logger); err != nil {
			return nil, fmt.Errorf("--token-auth-file: %w", err)
		}
	}
	if o.ConfigFile == "" && !o.OIDC.Given() && o.Webhook.ConfigFile == "" {
		return k, nil
	}
	cache := authn.NewCacheMetrics(w.Registry)
	with := oidc.With{
		Own: append([]string{issuer.URL}, issuer.Others...), AnonymousSaid: o.Anonymous != nil,
		Server: w.Server, Egress: w.Egress, Cache: cache, Registry: w.Registry, Logger: w.Logger,
	}
	if o.ConfigFile != "" {
		k.issuers, err = oidc.File(o.ConfigFile, with)
	} else if o.OIDC.Given() {
		k.issuers, err = oidc.New(o.OIDC, with)
	}
	if err != nil {
		return nil, err
	}
	if o.Webhook.ConfigFile != "" {
		k.webhook, err = authn.NewWebhook(o.Webhook, k.Issuer.Audiences(), authn.WebhookWith{Dial: w.Egress.To(egress.ControlPlane), Metrics: cache})
	}
	return k, err
}

// follow has an issuer sign by keys in files.
func (k *Known) follow(i *authn.IssuerOptions, files *keys) error {
	before := files.state()
	all, err := files.read()
	if err != nil {
		return err
	}
	files.seen.Store(&before)
	i.Key, i.OldKeys, i.Newer = all.Key, all.OldKeys, files.newer
	return nil
}

// openSigner has another program sign the tokens of an issuer.
func (k *Known) openSigner(ctx context.Context, i *authn.IssuerOptions, w With) (err error) {
	k.signer, err = signer.Open(ctx, signer.Options{Endpoint: k.o.Endpoint, Registry: w.Registry, Logger: w.Logger})
	if err != nil {
		return err
	}
	i.Signer = k.signer
	if most := k.signer.MaxLife(); i.MaxLife > most {
		return fmt.Errorf("--service-account-max-token-expiration cannot be set longer than the token expiration supported by the signer: %s > %s", i.MaxLife, most)
	}
	return nil
}

// Chain is options of a chain that asks about tokens in upstream's order: own are the cluster's own kinds.
func (k *Known) Chain(own ...authenticator.Token) authn.Options {
	o := authn.Options{Audiences: k.Issuer.Audiences(), Anonymous: k.anonymous, Expiry: k.expiry}
	if k.file != nil {
		o.Tokens = append(o.Tokens, authn.ForAudiences(o.Audiences, k.file))
	}
	o.Tokens = append(o.Tokens, own...)
	if k.issuers != nil {
		o.Tokens = append(o.Tokens, authn.ForAudiences(o.Audiences, k.issuers))
	}
	if k.webhook != nil {
		o.Tokens = append(o.Tokens, k.webhook)
	}
	return o
}

// anonymous reports whether a path may be asked for by who shows nothing.
func (k *Known) anonymous(path string) bool {
	if k.issuers != nil {
		if said := k.issuers.Anonymous(); said != nil {
			for i := range said.Conditions {
				if said.Conditions[i].Path == path {
					return true
				}
			}
			return said.Enabled && len(said.Conditions) == 0
		}
	}
	return k.o.Anonymous == nil || *k.o.Anonymous
}

// Run is what has to run for all that; nil: nothing.
func (k *Known) Run() func(ctx context.Context) error {
	switch {
	case k.signer == nil && k.issuers == nil:
		return nil
	case k.signer == nil:
		return k.issuers.Run
	case k.issuers == nil:
		return k.signer.Run
	}
	return func(ctx context.Context) error {
		g := task.NewGroup(ctx)
		g.Go("signer of tokens", k.signer.Run)
		g.Go("OpenID providers", k.issuers.Run)
		return g.Wait()
	}
}
