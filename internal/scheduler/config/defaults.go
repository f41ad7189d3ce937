package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentv1alpha1 "k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

// setDefaults fills in what is not set, as upstream.
func setDefaults(f *configv1.KubeSchedulerConfiguration) {
	setDefault(&f.Parallelism, 16)
	if len(f.Profiles) == 0 {
		f.Profiles = []configv1.KubeSchedulerProfile{{}}
	}
	if len(f.Profiles) == 1 { // of several, each must say which it is
		setDefault(&f.Profiles[0].SchedulerName, DefaultName)
	}
	setDefault(&f.PercentageOfNodesToScore, 0)
	setDefault(&f.PodInitialBackoffSeconds, 1)
	setDefault(&f.PodMaxBackoffSeconds, 10)
	setLeaderDefaults(&f.LeaderElection)
	for i := range f.Extenders {
		if t := &f.Extenders[i].HTTPTimeout; t.Duration == 0 {
			t.Duration = 5 * time.Second
		}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

func setLeaderDefaults(l *componentv1alpha1.LeaderElectionConfiguration) {
	setDefault(&l.LeaderElect, true)
	for _, d := range []struct {
		field *metav1.Duration
		value time.Duration
	}{{&l.LeaseDuration, 15 * time.Second}, {&l.RenewDeadline, 10 * time.Second}, {&l.RetryPeriod, 2 * time.Second}} {
		if d.field.Duration == 0 {
			d.field.Duration = d.value
		}
	}
	for _, d := range []struct {
		field *string
		value string
	}{
		{&l.ResourceLock, "leases"},
		{&l.ResourceNamespace, configv1.SchedulerDefaultLockObjectNamespace},
		{&l.ResourceName, configv1.SchedulerDefaultLockObjectName},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
}

// cpuAndMemory are the resources that scores are about by default.
func cpuAndMemory() []configv1.ResourceSpec {
	return []configv1.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
}

// setWeights gives resources that have no weight that of 1.
func setWeights(list []configv1.ResourceSpec) {
	for i := range list {
		if list[i].Weight == 0 {
			list[i].Weight = 1
		}
	}
}
