package cluster

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/store/etcd"
)

// storageSize shows the size of the store's database when it is asked for.
func storageSize(bytes func() int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "apiserver_storage_size_bytes",
		Help:        "Size of the database that keeps the cluster's state, in bytes.",
		ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"},
	}, func() float64 { return float64(bytes()) })
}

// storeQuestions shows how often this server has asked others how far the store is, when it is asked for.
type storeQuestions struct{ store *etcd.Server }

var questionsDesc = prometheus.NewDesc("kemudi_store_questions_total",
	"Questions to other servers how far the store is, one for all reads that wait: confirmed by the other one, or left to raft.", []string{"outcome"}, nil)

func (q storeQuestions) Describe(ch chan<- *prometheus.Desc) { ch <- questionsDesc }

func (q storeQuestions) Collect(ch chan<- prometheus.Metric) {
	held, left := q.store.Questions()
	ch <- prometheus.MustNewConstMetric(questionsDesc, prometheus.CounterValue, float64(held), "confirmed")
	ch <- prometheus.MustNewConstMetric(questionsDesc, prometheus.CounterValue, float64(left), "raft")
}
