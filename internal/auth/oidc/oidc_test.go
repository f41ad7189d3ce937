package oidc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/reach/egress"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/openid"
	"github.com/kemudi/kemudi/test/wait"
)

// with is what a server has of its own.
func with() With {
	return With{Own: []string{"https://own"}, Cache: authn.NewCacheMetrics(nil), Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Server: "s1"}
}

// run has the issuers run until the test ends.
func run(t *testing.T, i *Issuers) {
	g := task.NewGroup(t.Context())
	g.Go("issuers", i.Run)
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// started are issuers that a text describes, with their keys.
func started(t *testing.T, text string) *Issuers {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	i, err := File(file, with())
	if err != nil {
		t.Fatal(err)
	}
	run(t, i)
	return i
}

// whose says whose token it is, or why it is nobody's, once keys are there.
func whose(t *testing.T, i *Issuers, token string) (says string) {
	t.Helper()
	wait.Until(t, func() error {
		says = ask(t.Context(), i, token)
		if strings.Contains(says, "not initialized") {
			return errors.New(says)
		}
		return nil
	})
	return says
}

func ask(ctx context.Context, i *Issuers, token string) string {
	res, ok, err := i.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !ok:
		return "nobody"
	}
	return text(res.User)
}

func text(u user.Info) string {
	var extra []string
	for key, values := range u.GetExtra() {
		extra = append(extra, key+"="+strings.Join(values, "+"))
	}
	sort.Strings(extra)
	return strings.TrimSpace(fmt.Sprintf("%s uid=%s groups=%s %s", u.GetName(), u.GetUID(), strings.Join(u.GetGroups(), ","), strings.Join(extra, " ")))
}

// indent is a PEM as a block of YAML.
func indent(pem []byte) string {
	return "|\n        " + strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", "\n        ")
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// plain is an issuer whose users are named by a claim.
func plain(p *openid.Provider, audiences string) string {
	return fmt.Sprintf(`  - issuer:
      url: %s
      audiences: [%s]
      audienceMatchPolicy: MatchAny
      certificateAuthority: %s
    claimMappings:
      username: {claim: sub, prefix: "p:"}
      groups: {claim: groups, prefix: "g:"}
`, p.URL, audiences, indent(p.CA))
}

func TestTokensAreHeldAgainstTheRulesOfTheirIssuer(t *testing.T) {
	t.Parallel()
	people, machines := openid.New(t), openid.New(t)
	machines.Rotate(jose.ES256)
	groups := people.Token(map[string]any{"aud": "api", "groups": []string{"far"}})
	people.Also("/groups", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			http.Error(w, "who?", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, groups)
	})
	i := started(t, head+"jwt:\n"+plain(people, "api, other")+fmt.Sprintf(`  - issuer:
      url: %s
      discoveryURL: %s/elsewhere
      audiences: [robots]
      certificateAuthority: %s
    claimValidationRules:
    - {claim: hd, requiredValue: example.com}
    - {expression: 'claims.level > 2', message: level is too low}
    claimMappings:
      username: {expression: '"m:" + claims.sub'}
      groups: {expression: 'claims.?roles.orValue([])'}
      uid: {claim: id}
      extra:
      - {key: example.com/team, valueExpression: 'claims.team__dot__name'}
    userValidationRules:
    - {expression: "!user.username.startsWith('m:system:')", message: no system names}
`, machines.URL, machines.URL, indent(machines.CA)))

	secret, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte("00000000000000000000000000000000")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	symmetric, err := jwt.Signed(secret).Claims(map[string]any{"iss": people.URL, "aud": "api", "sub": "jane", "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	raw := func(part string) string { return base64.RawURLEncoding.EncodeToString([]byte(part)) }
	none := raw(`{"alg":"none"}`) + "." + raw(`{"iss":"`+people.URL+`","aud":"api","sub":"jane","exp":4000000000}`) + "."
	good := people.Token(map[string]any{"aud": "api", "sub": "jane", "jti": "42"})
	stolen := strings.Join([]string{strings.Split(good, ".")[0], raw(`{"iss":"` + people.URL + `","aud":"api","sub":"root","exp":4000000000}`), strings.Split(good, ".")[2]}, ".")
	machine := func(with map[string]any) string {
		all := map[string]any{"aud": "robots", "sub": "r2", "id": "u1", "hd": "example.com", "level": 3, "team.name": []string{"a", "b"}}
		for k, v := range with {
			all[k] = v
		}
		return machines.Token(all)
	}
	from := func(endpoint string) map[string]any {
		return map[string]any{
			"aud": "api", "sub": "jane", "_claim_names": map[string]string{"groups": "s"},
			"_claim_sources": map[string]any{"s": map[string]string{"endpoint": endpoint, "access_token": "sesame"}},
		}
	}
	for name, c := range map[string]struct{ token, want string }{
		"good":                               {good, "p:jane uid= groups= authentication.kubernetes.io/credential-id=JTI=42"},
		"for the other audience":             {people.Token(map[string]any{"aud": []string{"x", "other"}, "sub": "jane", "groups": "one"}), "p:jane uid= groups=g:one"},
		"with groups":                        {people.Token(map[string]any{"aud": "api", "sub": "jane", "groups": []string{"a", "b"}}), "p:jane uid= groups=g:a,g:b"},
		"for somebody else":                  {people.Token(map[string]any{"aud": "shop", "sub": "jane"}), `oidc: expected audience in ["api" "other"] got ["shop"]`},
		"for nobody":                         {people.Token(map[string]any{"sub": "jane"}), `oidc: expected audience in ["api" "other"] got []`},
		"of an issuer that nobody knows":     {people.Token(map[string]any{"iss": "https://other", "aud": "api", "sub": "jane"}), "nobody"},
		"expired":                            {people.Token(map[string]any{"aud": "api", "sub": "jane", "exp": 1}), "token is expired"},
		"without an end":                     {people.Token(map[string]any{"aud": "api", "sub": "jane", "exp": nil}), "token is expired"},
		"not good yet":                       {people.Token(map[string]any{"aud": "api", "sub": "jane", "nbf": time.Now().Add(time.Hour).Unix()}), "before the nbf (not before) time"},
		"good in a minute, by another clock": {people.Token(map[string]any{"aud": "api", "sub": "jane", "nbf": time.Now().Add(time.Minute).Unix()}), "p:jane"},
		"without a name":                     {people.Token(map[string]any{"aud": "api"}), `oidc: parse username claims "sub": claim not present`},
		"whose name is a number":             {people.Token(map[string]any{"aud": "api", "sub": 7}), "oidc: parse username claims"},
		"that nobody has signed":             {none, "malformed jwt"},
		"signed by a shared secret":          {symmetric, "malformed jwt"},
		"with the signature of another":      {stolen, "failed to verify signature"},
		"no token at all":                    {"sesame", "nobody"},
		"of parts that are nothing":          {"a.b.c", "nobody"},
		"huge":                               {"a." + raw(`{"iss":"`+people.URL+`","x":"`+strings.Repeat("x", 2<<20)+`"}`) + ".b", "nobody"},
		"groups told elsewhere":              {people.Token(from(people.URL + "/groups")), "p:jane uid= groups=g:far"},
		"groups told nowhere":                {people.Token(from(people.URL + "/nowhere")), "while getting distributed claim"},
		"groups told without TLS":            {people.Token(from("http://127.0.0.1/groups")), "is no URL of scheme https"},
		"of a machine":                       {machine(nil), "m:r2 uid=u1 groups= example.com/team=a+b"},
		"of a machine with roles":            {machine(map[string]any{"roles": []string{"x", "", "y"}}), "m:r2 uid=u1 groups=x,y example.com/team=a+b"},
		"of a machine with one role":         {machine(map[string]any{"roles": "x"}), "m:r2 uid=u1 groups=x example.com/team=a+b"},
		"of a machine with roles of a kind that is none": {machine(map[string]any{"roles": 7}), "expression must return a string or a list of strings"},
		"of another domain":                {machine(map[string]any{"hd": "example.org"}), "oidc: required claim hd value does not match. Got = example.org, want = example.com"},
		"of a level too low":               {machine(map[string]any{"level": 1}), "validation expression 'claims.level > 2' failed: level is too low"},
		"of a user who may not be":         {machine(map[string]any{"sub": "system:admin"}), "failed: no system names"},
		"without what an expression needs": {machine(map[string]any{"team.name": nil}), "m:r2 uid=u1 groups="},
	} {
		if got := whose(t, i, c.token); !strings.HasPrefix(got, c.want) && !(strings.HasPrefix(got, "error: ") && strings.Contains(got, c.want)) {
			t.Errorf("a token %s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestFlagsMeanASingleIssuer(t *testing.T) {
	t.Parallel()
	p := openid.New(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, p.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	token := p.Token(map[string]any{"aud": "api", "sub": "jane", "email": "jane@example.com", "email_verified": true, "groups": []string{"dev"}, "hd": "x"})
	for _, c := range []struct {
		flags Flags
		want  string
	}{
		{Flags{}, p.URL + "#jane uid= groups="},
		{Flags{UsernamePrefix: "-"}, "jane uid= groups="},
		{Flags{UsernamePrefix: "p:", GroupsClaim: "groups", GroupsPrefix: "g:"}, "p:jane uid= groups=g:dev"},
		{Flags{UsernameClaim: "email"}, "jane@example.com uid= groups="},
		{Flags{RequiredClaims: map[string]string{"hd": "y"}}, "error: oidc: required claim hd value does not match. Got = x, want = y"},
		{Flags{SigningAlgs: []string{"ES256"}}, `error: oidc: verify token: oidc: malformed jwt: unexpected signature algorithm "RS256"; expected ["ES256"]`},
	} {
		c.flags.IssuerURL, c.flags.ClientID, c.flags.CAFile = p.URL, "api", ca
		i, err := New(c.flags, with())
		if err != nil {
			t.Fatal(err)
		}
		run(t, i)
		if got := whose(t, i, token); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.flags, got, c.want)
		}
	}
	for _, c := range []struct {
		flags Flags
		want  string
	}{
		{Flags{IssuerURL: p.URL}, "oidc-issuer-url and oidc-client-id must be specified together"},
		{Flags{GroupsClaim: "groups"}, "oidc-issuer-url and oidc-client-id must be specified together"},
		{Flags{IssuerURL: "http://x", ClientID: "api"}, `jwt[0].issuer.url: Invalid value: "http://x": URL scheme must be https`},
		{Flags{IssuerURL: "https://own", ClientID: "api"}, "URL must not overlap with disallowed issuers"},
		{Flags{IssuerURL: p.URL, ClientID: "api", CAFile: ca + "x"}, "--oidc-ca-file: open "},
		{Flags{IssuerURL: p.URL, ClientID: "api", SigningAlgs: []string{"HS256"}}, `unsupported signing alg: "HS256"`},
	} {
		if _, err := New(c.flags, with()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.flags, err, c.want)
		}
	}
}

func TestWhoWaitsForAProviderIsNobodyElse(t *testing.T) {
	t.Parallel()
	p, other := openid.New(t), openid.New(t)
	p.Down()
	i := started(t, head+"jwt:\n"+plain(p, "api")+plain(other, "api"))
	if got := whose(t, i, other.Token(map[string]any{"aud": "api", "sub": "jo"})); got != "p:jo uid= groups=" {
		t.Errorf("a token of the provider that works: got %s", got)
	}
	token := p.Token(map[string]any{"aud": "api", "sub": "jane"})
	soon, cancel := context.WithTimeout(t.Context(), keyTimeout/2)
	defer cancel()
	if got := ask(soon, i, token); got != "error: oidc: authenticator not initialized" || soon.Err() != nil {
		t.Errorf("a token of the provider that is down: got %s, at once: %v", got, soon.Err() == nil)
	}
	p.Up()
	if got := whose(t, i, token); got != "p:jane uid= groups=" {
		t.Errorf("when it is up: got %s", got)
	}

	// Its keys are kept while it is down, and are exchanged when it has another one.
	p.Down()
	if got := ask(t.Context(), i, p.Token(map[string]any{"aud": "api", "sub": "joe"})); got != "p:joe uid= groups=" {
		t.Errorf("another token while it is down again: got %s", got)
	}
	p.Up()
	p.Rotate(jose.ES384)
	token = p.Token(map[string]any{"aud": "api", "sub": "jack"})
	wait.Until(t, func() error {
		if got := ask(t.Context(), i, token); got != "p:jack uid= groups=" {
			return fmt.Errorf("a token of its new key: got %s", got)
		}
		return nil
	})
	p.Say("https://liar")
	liar := started(t, head+"jwt:\n"+plain(p, "api"))
	wait.Until(t, func() error {
		keys := liar.now.Load().issuers[p.URL].keys
		keys.mu.Lock()
		defer keys.mu.Unlock()
		if !keys.mu.failing {
			return errors.New("a provider that calls itself by another name has not been found out")
		}
		return nil
	})
	if got := ask(t.Context(), liar, token); got != "error: oidc: authenticator not initialized" {
		t.Errorf("a provider that calls itself by another name: got %s", got)
	}
}

// counted are the counters and gauges of a name, by their labels.
func counted(t *testing.T, reg *prometheus.Registry, name string) (all []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				label := ""
				if len(m.GetLabel()) > 0 {
					label = m.GetLabel()[len(m.GetLabel())-1].GetValue()
				}
				all = append(all, fmt.Sprintf("%s=%v", label, m.GetCounter().GetValue()+m.GetGauge().GetValue()))
			}
		}
	}
	return all
}

func TestFileIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	p := openid.New(t)
	i := started(t, head+"jwt:\n"+plain(p, "api"))
	token := p.Token(map[string]any{"aud": "api", "sub": "jane"})
	if got := whose(t, i, token); got != "p:jane uid= groups=" {
		t.Fatalf("at first: got %s", got)
	}
	become := func(text string) {
		t.Helper()
		if err := os.WriteFile(i.file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(i.file+".new", i.file); err != nil {
			t.Fatal(err)
		}
	}
	reloads := func(want string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := counted(t, i.with.Registry, "apiserver_authentication_config_controller_automatic_reloads_total"); !slices.Contains(got, want) {
				return fmt.Errorf("automatic reloads: got %q, want %s", got, want)
			}
			return nil
		})
	}
	before := counted(t, i.with.Registry, "apiserver_authentication_config_controller_last_config_info")
	become(head + "jwt:\n" + plain(p, "api") + "nonsense: true\n")
	reloads("failure=1")
	if got := ask(t.Context(), i, token); got != "p:jane uid= groups=" {
		t.Errorf("when the file is bad: got %s, want what it said before", got)
	}
	fetched := p.Fetched()
	become(head + "anonymous: {enabled: true, conditions: [{path: /livez}]}\njwt:\n" + plain(p, "shop"))
	reloads("success=1")
	if got := ask(t.Context(), i, token); !strings.Contains(got, `expected audience in ["shop"]`) {
		t.Errorf("when the file is for another audience: got %s", got)
	}
	if got := ask(t.Context(), i, p.Token(map[string]any{"aud": "shop", "sub": "jane"})); got != "p:jane uid= groups=" {
		t.Errorf("a token for that audience, at once: got %s", got)
	}
	if got := p.Fetched(); got != fetched {
		t.Errorf("keys of a provider that is there as before were fetched %d times more", got-fetched)
	}
	if said := i.Anonymous(); said == nil || !said.Enabled || len(said.Conditions) != 1 {
		t.Errorf("anonymous: got %+v", said)
	}
	if after := counted(t, i.with.Registry, "apiserver_authentication_config_controller_last_config_info"); len(after) != 1 || slices.Equal(before, after) {
		t.Errorf("digest of the configuration: got %q, before %q", after, before)
	}
	become(head)
	reloads("success=2")
	if got := ask(t.Context(), i, token); got != "nobody" {
		t.Errorf("when the provider is gone: got %s", got)
	}
	wait.Until(t, func() error {
		if got := counted(t, i.with.Registry, "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds"); len(got) > 0 {
			return fmt.Errorf("metrics of a provider that is gone: %q", got)
		}
		return nil
	})
}

func TestProvidersAreReachedByTheEgressTheyName(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Method + " " + r.Host:
		default:
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	file := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := with()
	var err error
	own.Egress, err = egress.Read(file("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n" +
		"- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: '" + proxy.URL + "'}}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	i, err := File(file(head+"jwt:\n  - issuer: {url: 'https://issuer.example', audiences: [a], egressSelectorType: controlplane}\n    claimMappings: {username: {claim: sub, prefix: ''}}\n"), own)
	if err != nil {
		t.Fatal(err)
	}
	run(t, i)
	select {
	case got := <-asked:
		if got != "CONNECT issuer.example:443" {
			t.Errorf("the proxy was asked %s", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the proxy was not asked")
	}
}

func TestConfigurationsThatMakeNoSenseAreRefusedByTheirFields(t *testing.T) {
	t.Parallel()
	one := func(issuer, rest string) string {
		return head + "jwt:\n  - issuer: {" + issuer + "}\n    claimMappings: {username: {claim: sub, prefix: ''}}\n" + rest
	}
	const good = "url: 'https://x', audiences: [a]"
	for text, want := range map[string]string{
		"":                 "empty config data",
		"kind: Pod\n":      "",
		head + "jwt: 7\n":  "",
		head + "jvt: []\n": `unknown field "jvt"`,
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n": "expected AuthenticationConfiguration, got ",
		one("audiences: [a]", ""):                                                                "jwt[0].issuer.url: Required value",
		one("url: 'https://x'", ""):                                                              "jwt[0].issuer.audiences: Required value",
		one("url: 'https://x', audiences: [a, b]", ""):                                           `jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences`,
		one(good+", certificateAuthority: x", ""):                                                "jwt[0].issuer.certificateAuthority: Invalid value",
		one(good+", discoveryURL: 'https://x'", ""):                                              "discoveryURL must be different from URL",
		one(good+", egressSelectorType: cluster", ""):                                            "jwt[0].issuer.egressSelectorType: Invalid value: \"cluster\": this server has no egress selectors",
		one(good, "    claimValidationRules: [{expression: 'claims.'}]\n"):                       "jwt[0].claimValidationRules[0].expression: Invalid value",
		one(good, "    claimValidationRules: [{expression: '\"a\"'}]\n"):                         "must evaluate to bool",
		one(good, "    userValidationRules: [{expression: 'user.nose == 1'}]\n"):                 "jwt[0].userValidationRules[0].expression: Invalid value",
		one("url: 'https://own', audiences: [a]", ""):                                            `jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers: [https://own]`,
		head + "anonymous: {enabled: false, conditions: [{path: /x}]}\n":                         "enabled should be set to true when conditions are defined",
		head + "jwt:\n  - issuer: {" + good + "}\n    claimMappings: {username: {claim: sub}}\n": "jwt[0].claimMappings.username.prefix: Required value",
	} {
		r := rules{decoder: newDecoder(), own: []string{"https://own"}}
		c, err := parse(r.decoder, []byte(text))
		if err == nil {
			_, err = r.mappers(c)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %s", text, err, want)
		}
	}
	said := rules{decoder: newDecoder(), anonymousSaid: true}
	c, err := parse(said.decoder, []byte(head+"anonymous: {enabled: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := said.mappers(c); err == nil || !strings.Contains(err.Error(), "--anonymous-auth flag cannot be set when anonymous field is configured") {
		t.Errorf("anonymous said twice: got %v", err)
	}
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		if _, err := parse(said.decoder, []byte("apiVersion: apiserver.config.k8s.io/"+version+"\nkind: AuthenticationConfiguration\n")); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("a.b.c")
	f.Add("e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://x","aud":["a"],"exp":1e99,"nbf":"x","groups":{}}`)) + ".e30")
	i := &issuer{accepted: []jose.SignatureAlgorithm{jose.RS256}}
	p := &provider{want: make(chan struct{}, 1)}
	one, err := (&Flags{IssuerURL: "https://x", ClientID: "a"}).config()
	if err != nil {
		f.Fatal(err)
	}
	i.rules, i.keys = &one.JWT[0], p
	f.Fuzz(func(t *testing.T, token string) {
		_ = issuerOf(token)
		_, _ = parseKeys([]byte(token))
		if res, err := i.authenticate(t.Context(), token); err == nil {
			t.Errorf("%q: got %v, want nobody", token, res)
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(head + "jwt: [{issuer: {url: 'https://x', audiences: [a]}, claimMappings: {username: {expression: claims.sub}}}]")
	r := rules{decoder: newDecoder()}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse(r.decoder, []byte(text))
		if err != nil {
			return
		}
		all, err := r.mappers(c)
		if err == nil && len(all) != len(c.JWT) {
			t.Errorf("%q: got %d issuers, want %d", text, len(all), len(c.JWT))
		}
	})
}
