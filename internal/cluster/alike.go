package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/servers"
	"github.com/kemudi/kemudi/internal/watchcache"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// alike is a setting that all servers must have alike, whichever a client asks and whichever leads.
type alike struct {
	flag string
	get  func(o *Options) string // as the flag has it; empty: nothing
	set  func(o *Options, value string) error
}

// alikes are these settings. A server that is told nothing has what the others have.
var alikes = []alike{
	{"enable-admission-plugins", func(o *Options) string { on, _ := AdmissionPlugins(); return pluginNames(o.API.Plugins.Enable, on) },
		func(o *Options, v string) error { o.API.Plugins.Enable = words(v); return nil }},
	{"disable-admission-plugins", func(o *Options) string { _, off := AdmissionPlugins(); return pluginNames(o.API.Plugins.Disable, off) },
		func(o *Options, v string) error { o.API.Plugins.Disable = words(v); return nil }},
	{"admission-control-config-file", func(o *Options) string { return contents(o.API.PluginConfigFile) }, needFile("admission-control-config-file")},
	{"runtime-config", runtimeConfig, setRuntimeConfig},
	{"etcd-prefix", func(o *Options) string { return o.Etcd.Prefix }, func(o *Options, v string) error { o.Etcd.Prefix = v; return nil }},
	{"event-ttl", func(o *Options) string { return o.API.EventTTL.String() },
		func(o *Options, v string) (err error) { o.API.EventTTL, err = time.ParseDuration(v); return err }},
	{"api-audiences", func(o *Options) string { return strings.Join(o.Identity.Audiences, ",") },
		func(o *Options, v string) error { o.Identity.Audiences = words(v); return nil }},
	{"service-account-issuer", func(o *Options) string { return strings.Join(o.Identity.Issuers, ",") },
		func(o *Options, v string) error { o.Identity.Issuers = words(v); return nil }},
	{"service-account-max-token-expiration", func(o *Options) string { return o.Identity.MaxLife.String() },
		func(o *Options, v string) (err error) { o.Identity.MaxLife, err = time.ParseDuration(v); return err }},
	{"service-account-extend-token-expiration", func(o *Options) string { return not(o.Identity.NoExtension) },
		func(o *Options, v string) error { return setNot(&o.Identity.NoExtension, v) }},
	{"requestheader-client-ca-file", func(o *Options) string { return contents(o.Identity.FrontProxy.CA) }, needFile("requestheader-client-ca-file")},
	{"node-cidr-mask-size-ipv4", func(o *Options) string {
		return maskSize(o, o.Controllers.NodeIPAM.Bits4, controllers.Defaults().NodeIPAM.Bits4)
	},
		func(o *Options, v string) error { return setMaskSize(o, &o.Controllers.NodeIPAM.Bits4, v) }},
	{"node-cidr-mask-size-ipv6", func(o *Options) string {
		return maskSize(o, o.Controllers.NodeIPAM.Bits6, controllers.Defaults().NodeIPAM.Bits6)
	},
		func(o *Options, v string) error { return setMaskSize(o, &o.Controllers.NodeIPAM.Bits6, v) }},
	{"load-balancer", func(o *Options) string { return strings.Join(o.Controllers.LoadBalancer.From, ",") },
		func(o *Options, v string) error { o.Controllers.LoadBalancer.From = words(v); return nil }},
	{"acme-server", func(o *Options) string { return o.Controllers.ACME.Server },
		func(o *Options, v string) error { o.Controllers.ACME.Server = v; return nil }},
	{"acme-email", func(o *Options) string { return o.Controllers.ACME.Email },
		func(o *Options, v string) error { o.Controllers.ACME.Email = v; return nil }},
	{"acme-ca-file", func(o *Options) string { return contents(o.Controllers.ACME.CAFile) }, needFile("acme-ca-file")},
	{"allocate-node-cidrs", func(o *Options) string { return not(o.Controllers.NodeIPAM.Off) },
		func(o *Options, v string) error { return setNot(&o.Controllers.NodeIPAM.Off, v) }},
	{"cluster-name", func(o *Options) string { return o.Controllers.Cloud.ClusterName },
		func(o *Options, v string) error { o.Controllers.Cloud.ClusterName = v; return nil }},
	{"configure-cloud-routes", func(o *Options) string { return not(o.Controllers.Cloud.NoRoutes) },
		func(o *Options, v string) error { return setNot(&o.Controllers.Cloud.NoRoutes, v) }},
	{"leader-elect", func(o *Options) string { return not(o.Election.Off) },
		func(o *Options, v string) error { return setNot(&o.Election.Off, v) }},
	{"leader-elect-resource-name", func(o *Options) string { return strings.Join(o.Election.WithDefaults().Names, ",") },
		func(o *Options, v string) error { o.Election.Names = words(v); return nil }},
	{"leader-elect-resource-namespace", func(o *Options) string { return cmp.Or(o.Election.Namespace, leader.Defaults().Namespace) },
		func(o *Options, v string) error { o.Election.Namespace = v; return nil }},
}

// maskSizeFlag says --node-cidr-mask-size-ipv4 or -ipv6, whichever of them counts.
const maskSizeFlag = "node-cidr-mask-size"

// alike is what this server has of them, by the names of their flags.
func (o *Options) alike() map[string]string {
	all := map[string]string{}
	for _, a := range alikes {
		all[a.flag] = a.get(o)
	}
	return all
}

// sayAlike is what of them was said by flags.
func (o *Options) sayAlike(said func(flag string) bool) map[string]string {
	all := map[string]string{}
	for _, a := range alikes {
		if said(a.flag) || strings.HasPrefix(a.flag, maskSizeFlag) && said(maskSizeFlag) {
			all[a.flag] = a.get(o)
		}
	}
	return all
}

// adoptAlike takes over what was not said.
func (o *Options) adoptAlike(others settings.Settings) error {
	for _, a := range alikes {
		theirs, known := others.Servers[a.flag]
		if _, said := o.Joining.Said.Servers[a.flag]; said || !known || theirs == a.get(o) {
			continue
		}
		if err := a.set(o, theirs); err != nil {
			return fmt.Errorf("have --%s %s as the other servers: %w", a.flag, theirs, err)
		}
		o.Logger.Info("this server does as the others do", "flag", a.flag, "value", theirs)
	}
	return o.prepare()
}

// agree has this server do as the others do in what they must do alike, before anything is served. What
// it was told is refused if others live that do otherwise; later ones do as it does if none does.
func (s *server) agree(ctx context.Context, st state) error {
	if s.o.alone != nil || !st.shared {
		return nil
	}
	key := core.ConfigMaps.Def.Key(metav1.NamespaceSystem, settings.ConfigMap)
	kv, _, err := st.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read what the servers of this cluster have in common: %w", err)
	}
	if kv.Rev == 0 {
		return nil
	}
	has, err := watchcache.Decode(core.ConfigMaps.Def, kv.Value, kv.Rev)
	if err != nil {
		return fmt.Errorf("read what the servers of this cluster have in common: %w", err)
	}
	theirs, err := settings.Parse(has.(*corev1.ConfigMap).Data[settings.Key])
	if err != nil {
		return err
	}
	others, err := servers.Others(ctx, st, s.o.NodeName)
	if err != nil {
		return err
	}
	if others {
		if err := theirs.Check(s.o.Joining.Said); err != nil {
			return err
		}
	}
	// Who begins anew on a store of others says how things are from now on, unless somebody is there.
	if at := s.member.get(); others || at.Several || at.Joined {
		return s.o.adoptAlike(theirs)
	}
	return nil
}

// pluginNames are those names in order, without those that are so by default.
func pluginNames(names, byDefault []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(byDefault, name) })
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// words are the parts of a list with commas.
func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func runtimeConfig(o *Options) string {
	var parts []string
	for what, on := range o.API.RuntimeConfig {
		parts = append(parts, what+"="+strconv.FormatBool(on))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func setRuntimeConfig(o *Options, value string) error {
	o.API.RuntimeConfig = map[string]bool{}
	for _, part := range words(value) {
		what, text, _ := strings.Cut(part, "=")
		on, err := strconv.ParseBool(text)
		if err != nil {
			return err
		}
		o.API.RuntimeConfig[what] = on
	}
	return nil
}

// maskSize is the size of a node's share of one family.
func maskSize(o *Options, own, byDefault int) string {
	return strconv.Itoa(cmp.Or(own, o.Controllers.NodeIPAM.Bits, byDefault))
}

func setMaskSize(o *Options, bits *int, value string) (err error) {
	o.Controllers.NodeIPAM.Bits = 0
	*bits, err = strconv.Atoi(value)
	return err
}

// not is the text of a flag that turns off what is on without it.
func not(off bool) string { return strconv.FormatBool(!off) }

func setNot(off *bool, value string) error {
	on, err := strconv.ParseBool(value)
	*off = !on
	return err
}

// contents tells files apart; one that cannot be read is refused elsewhere.
func contents(file string) string {
	if file == "" {
		return ""
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("a file with SHA-256 %.8x...", sha256.Sum256(data))
}

// needFile refuses to do without what others have.
func needFile(flag string) func(*Options, string) error {
	return func(_ *Options, theirs string) error {
		if theirs == "" {
			return errors.New("leave the flag out, as they have done, or stop them all to change it")
		}
		return fmt.Errorf("start this one with a copy of theirs (--%s)", flag)
	}
}
