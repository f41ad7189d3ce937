package attachdetach

// Options say when a node is taken for lost. The zero value is upstream's.
type Options struct {
	// Patient says that nodes which are not ready keep what they may use, however long
	// that lasts (--disable-force-detach-on-timeout). Those that are out of service do not.
	Patient bool
}
