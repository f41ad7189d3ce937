package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
)

// onlyOne holds a lock, in a directory that all nodes have, for as long as it runs. It is called after
// the host. Where two of one host run at a time, the second says so in a file beside it: the kernel
// lets go of a lock no earlier than its process has ended.
func onlyOne(args []string) int {
	var dir string
	flags("only-one", args, func(f *pflag.FlagSet) { f.StringVar(&dir, "dir", "/ones", "directory of the locks") })
	name, err := os.Hostname()
	if err != nil {
		fail("%v", err)
	}
	path := filepath.Join(dir, name)
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		fail("%v", err)
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.Join(err, os.WriteFile(path+"-twice", nil, 0o644))
	}
	if err != nil {
		fail("%v", err)
	}
	fmt.Println("Alone")
	return pause(nil)
}
