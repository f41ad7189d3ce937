package named

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const apart = "KEMUDI_TEST_APART" // set where the mounts are the process's own

// TestNamespacesOutliveTheFirstOfTheIPProgram makes a namespace, has the ip program make another one, and looks
// whether ours can be entered and removed then. It does so where mounts are its own.
func TestNamespacesOutliveTheFirstOfTheIPProgram(t *testing.T) {
	ip, err := exec.LookPath("ip")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("needs root, and the ip program")
	}
	if os.Getenv(apart) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), apart+"=yes")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread() // the process ends with the test
	if err := outlives(ip); err != nil {
		t.Error(err)
	}
}

func outlives(ip string) error {
	if err := nothingMounted(); err != nil {
		return err
	}
	if err := Open(); err != nil {
		return err
	}
	ours, err := netns.NewNamed("kemudi-named")
	if err != nil {
		return err
	}
	_ = ours.Close()
	for _, do := range []string{"add", "delete"} {
		if out, err := exec.Command(ip, "netns", do, "kemudi-theirs").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	found, err := netns.GetFromName("kemudi-named")
	if err != nil {
		return err
	}
	if err := errors.Join(netns.Set(found), found.Close(), netns.DeleteNamed("kemudi-named"), Close()); err != nil {
		return err
	}
	if left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(Dir)); err != nil || len(left) > 0 {
		return fmt.Errorf("left: %v, %v", left, err)
	}
	return nil
}

// nothingMounted leaves an empty directory of names.
func nothingMounted() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(Dir))
		if err != nil || len(mounts) == 0 {
			break
		}
		for _, m := range mounts {
			_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH) // what others hide is there in the next round
		}
	}
	return unix.Mount("none", "/run", "tmpfs", 0, "")
}
