package config

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	componentv1alpha1 "k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/scheduler/extender"
	"github.com/kemudi/kemudi/internal/scheduler/plugins"
)

// DefaultName is the scheduler that pods get when they name none.
const DefaultName = "default-scheduler"

// Config is how to schedule.
type Config struct {
	Profiles  []Profile // at least one, each with another name
	Extenders []*extender.Extender

	// How long a pod waits after an attempt that failed, at first and at most.
	PodInitialBackoff, PodMaxBackoff time.Duration

	// Parallelism is how many pods are evicted at once for one that preempts them. Nodes are
	// filtered and scored by one goroutine whatever it says.
	Parallelism int

	// LeaderElection says how processes agree on who schedules; its one name is that of the lease.
	LeaderElection leader.Settings

	// Kubeconfig says where the API is, to a scheduler that is a process of its own
	// (clientConnection.kubeconfig).
	Kubeconfig string

	// Idle is what the file says and nothing follows from.
	Idle []IdleField

	file *configv1.KubeSchedulerConfiguration // with the defaults
}

// File is the configuration as a file has it that leaves out nothing but what the plugins are.
func (c *Config) File() *configv1.KubeSchedulerConfiguration {
	f := c.file.DeepCopy()
	f.TypeMeta = metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}
	l := &c.LeaderElection
	f.LeaderElection = componentv1alpha1.LeaderElectionConfiguration{
		LeaderElect: ptr.To(!l.Off), LeaseDuration: metav1.Duration{Duration: l.LeaseDuration}, RenewDeadline: metav1.Duration{Duration: l.RenewDeadline},
		RetryPeriod: metav1.Duration{Duration: l.RetryPeriod}, ResourceLock: l.Lock, ResourceName: l.Names[0], ResourceNamespace: l.Namespace,
	}
	return f
}

// Profile is how pods that name it are scheduled.
type Profile struct {
	Name string // the spec.schedulerName of its pods
	// PercentageOfNodesToScore is how much of the cluster is searched before the
	// best node found is taken, at least 100 nodes. 0: 50 % of 100 nodes, falling
	// to 5 % of 5,625.
	PercentageOfNodesToScore int
	Plugins                  *plugins.Choice
}

// Default is the configuration of a scheduler that is told nothing.
func Default() *Config {
	c, err := fromFile(&configv1.KubeSchedulerConfiguration{})
	if err != nil {
		panic(fmt.Sprintf("default configuration of the scheduler: %v", err)) // a test reads it
	}
	return c
}

// Parse reads a configuration in YAML or JSON.
func Parse(data []byte) (*Config, error) {
	file, err := decode(data)
	if err != nil {
		return nil, err
	}
	return fromFile(file)
}

// fromFile fills in defaults, checks everything, and takes over what is asked for.
func fromFile(file *configv1.KubeSchedulerConfiguration) (*Config, error) {
	idle := idleFields(file)
	setDefaults(file)
	errs := validate(file)
	extenders, more := newExtenders(file.Extenders)
	errs = append(errs, more...)
	c := &Config{
		Profiles:          make([]Profile, len(file.Profiles)),
		Extenders:         extenders,
		PodInitialBackoff: time.Duration(*file.PodInitialBackoffSeconds) * time.Second,
		PodMaxBackoff:     time.Duration(*file.PodMaxBackoffSeconds) * time.Second,
		Parallelism:       int(*file.Parallelism),
		LeaderElection:    election(&file.LeaderElection),
		Kubeconfig:        file.ClientConnection.Kubeconfig,
		Idle:              idle,
		file:              file,
	}
	for i := range file.Profiles {
		profile, more := newProfile(&file.Profiles[i], field.NewPath("profiles").Index(i))
		errs = append(errs, more...)
		if profile.PercentageOfNodesToScore = int(*file.PercentageOfNodesToScore); file.Profiles[i].PercentageOfNodesToScore != nil {
			profile.PercentageOfNodesToScore = int(*file.Profiles[i].PercentageOfNodesToScore)
		}
		c.Profiles[i] = profile
	}
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	for i := range c.Profiles {
		fit := c.Profiles[i].Plugins.NodeResourcesFit
		fit.IgnoredResources = append(fit.IgnoredResources, ignored(file.Extenders)...)
		if err := choose(c.Profiles[i].Plugins, &file.Profiles[i]); err != nil {
			return nil, fmt.Errorf("profile %q: %w", c.Profiles[i].Name, err)
		}
	}
	return c, nil
}

// newExtenders makes extenders; one without a URL has been found out before.
func newExtenders(list []configv1.Extender) (extenders []*extender.Extender, errs field.ErrorList) {
	for i := range list {
		if list[i].URLPrefix == "" {
			continue
		}
		e, err := extender.New(list[i], field.NewPath("extenders").Index(i))
		if err != nil {
			errs = append(errs, err)
		}
		extenders = append(extenders, e)
	}
	return extenders, errs
}

// ignored are the resources that extenders alone look after.
func ignored(extenders []configv1.Extender) (names []string) {
	for i := range extenders {
		for _, r := range extenders[i].ManagedResources {
			if r.IgnoredByScheduler {
				names = append(names, r.Name)
			}
		}
	}
	return names
}

// newProfile is a profile without the plugins that it chooses.
func newProfile(p *configv1.KubeSchedulerProfile, path *field.Path) (Profile, field.ErrorList) {
	profile := Profile{Plugins: &plugins.Choice{}}
	if p.SchedulerName != nil {
		profile.Name = *p.SchedulerName
	}
	return profile, readArgs(&profile.Plugins.Args, p.PluginConfig, path.Child("pluginConfig"))
}
