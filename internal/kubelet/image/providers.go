package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"
)

// providerPatience is how long a credential provider may take to answer.
const providerPatience = time.Minute

// Providers are programs of the node's operator that know credentials: plugins by
// KEP-2133. They may be used by many goroutines at once.
type Providers struct {
	list []kubeletconfig.CredentialProvider
	bin  string
	log  *slog.Logger
	mu   struct {
		sync.Mutex
		answers map[answerKey]answer
	}
}

// answerKey says for what a provider's answer is good: an image, a registry, or
// everything; and for whom, if not for all pods.
type answerKey struct{ provider, scope, account string }

type answer struct {
	auths   map[string]dockerAuth
	expires time.Time
}

// NewProviders reads the configuration and checks it; without one there are none.
func NewProviders(c Config, log *slog.Logger) (*Providers, error) {
	p := &Providers{bin: c.ProviderBinDir, log: log}
	p.mu.answers = map[answerKey]answer{}
	if c.ProviderConfig == "" {
		return p, nil
	}
	files, err := configFiles(c.ProviderConfig)
	if err != nil {
		return nil, fmt.Errorf("read credential providers: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read credential providers: %w", err)
		}
		var config kubeletconfig.CredentialProviderConfig
		if err := yaml.UnmarshalStrict(data, &config); err != nil {
			return nil, fmt.Errorf("credential providers in %s: %w", file, err)
		}
		if config.Kind != "CredentialProviderConfig" || !strings.HasPrefix(config.APIVersion, "kubelet.config.k8s.io/") {
			return nil, fmt.Errorf("credential providers in %s: want kind CredentialProviderConfig of kubelet.config.k8s.io/v1, not %s of %s", file, config.Kind, config.APIVersion)
		}
		for _, one := range config.Providers {
			if err := p.add(one); err != nil {
				return nil, fmt.Errorf("credential provider %q in %s: %w", one.Name, file, err)
			}
		}
	}
	return p, nil
}

// configFiles returns the file, or the files of the directory in their order.
func configFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

// add checks a provider and takes it in.
func (p *Providers) add(one kubeletconfig.CredentialProvider) error {
	switch {
	case one.Name == "" || one.Name == "." || one.Name == ".." || strings.ContainsAny(one.Name, "/ "):
		return errors.New("name must be that of a program, without directory")
	case slices.ContainsFunc(p.list, func(other kubeletconfig.CredentialProvider) bool { return other.Name == one.Name }):
		return errors.New("name is there twice")
	case len(one.MatchImages) == 0:
		return errors.New("matchImages is required")
	case one.DefaultCacheDuration == nil || one.DefaultCacheDuration.Duration < 0:
		return errors.New("defaultCacheDuration is required and must not be negative")
	case one.APIVersion != credentialprovider.SchemeGroupVersion.String():
		return fmt.Errorf("apiVersion must be %s", credentialprovider.SchemeGroupVersion)
	}
	if err := checkTokens(one.TokenAttributes); err != nil {
		return err
	}
	if _, err := exec.LookPath(filepath.Join(p.bin, one.Name)); err != nil {
		return err
	}
	p.list = append(p.list, one)
	return nil
}

// AddTo adds to k what the providers of an image know, told of the pod's account (nil: it has none). Those
// that fail are logged and left out: the image may be public.
func (p *Providers) AddTo(ctx context.Context, k *Keyring, image string, account *Account) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return
	}
	host, repository := reference.Domain(named), "/"+reference.Path(named)
	for i := range p.list {
		one := &p.list[i]
		if !slices.ContainsFunc(one.MatchImages, func(pattern string) bool {
			h, prefix := splitRegistry(pattern)
			return hostMatches(h, host) && strings.HasPrefix(repository, prefix)
		}) {
			continue
		}
		b, ok, err := bearerOf(ctx, one.TokenAttributes, account)
		if ok {
			var auths map[string]dockerAuth
			if auths, err = p.ask(ctx, one, named, b); err == nil {
				err = k.add(auths, Credential{Account: b.account, Once: b.once})
			}
		}
		if err != nil {
			p.log.Warn("ask for registry credentials", "provider", one.Name, "image", image, "err", err)
		}
	}
}

// ask returns what a provider knows of an image, as it said before if that is
// still good.
func (p *Providers) ask(ctx context.Context, one *kubeletconfig.CredentialProvider, named reference.Named, b bearer) (map[string]dockerAuth, error) {
	scopes := map[credentialprovider.PluginCacheKeyType]string{
		credentialprovider.ImagePluginCacheKeyType: named.Name(), credentialprovider.RegistryPluginCacheKeyType: reference.Domain(named), credentialprovider.GlobalPluginCacheKeyType: "",
	}
	who := b.key()
	p.mu.Lock()
	for key, a := range p.mu.answers {
		if time.Now().After(a.expires) {
			delete(p.mu.answers, key)
		}
	}
	for _, scope := range scopes {
		if a, ok := p.mu.answers[answerKey{one.Name, scope, who}]; ok {
			p.mu.Unlock()
			return a.auths, nil
		}
	}
	p.mu.Unlock()
	req := credentialprovider.CredentialProviderRequest{Image: named.String(), ServiceAccountAnnotations: b.annotations}
	if b.token != nil {
		var err error
		if req.ServiceAccountToken, err = b.token(ctx); err != nil {
			return nil, fmt.Errorf("ask for a token of the pod's service account: %w", err)
		}
	}
	resp, err := p.run(ctx, one, req)
	if err != nil {
		return nil, err
	}
	scope, ok := scopes[resp.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("its answer has the unknown cacheKeyType %q", resp.CacheKeyType)
	}
	auths := map[string]dockerAuth{}
	for registry, a := range resp.Auth {
		auths[registry] = dockerAuth{Username: a.Username, Password: a.Password}
	}
	if keep := cmp.Or(resp.CacheDuration, one.DefaultCacheDuration).Duration; keep > 0 && !b.once {
		p.mu.Lock()
		p.mu.answers[answerKey{one.Name, scope, who}] = answer{auths, time.Now().Add(keep)}
		p.mu.Unlock()
	}
	return auths, nil
}

// run has the program answer a request.
func (p *Providers) run(ctx context.Context, one *kubeletconfig.CredentialProvider, question credentialprovider.CredentialProviderRequest) (*credentialprovider.CredentialProviderResponse, error) {
	kind := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: one.APIVersion, Kind: kind} }
	question.TypeMeta = kind("CredentialProviderRequest")
	req, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, providerPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, one.Name), one.Args...)
	cmd.Env = os.Environ()
	for _, v := range one.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(req), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %.500s", err, strings.TrimSpace(stderr.String()))
	}
	resp := &credentialprovider.CredentialProviderResponse{}
	if err := json.Unmarshal(stdout.Bytes(), resp); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if want := kind("CredentialProviderResponse"); resp.TypeMeta != want {
		return nil, fmt.Errorf("its answer is a %s of %q, want a %s of %q", resp.Kind, resp.APIVersion, want.Kind, want.APIVersion)
	}
	return resp, nil
}
