package cluster

import "github.com/prometheus/client_golang/prometheus"

// storageSize shows the size of the store's database when it is asked for.
func storageSize(bytes func() int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "apiserver_storage_size_bytes",
		Help:        "Size of the database that keeps the cluster's state, in bytes.",
		ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"},
	}, func() float64 { return float64(bytes()) })
}
