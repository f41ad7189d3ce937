package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const (
	newFileContent = "mount-tester new file\n"
	tmpfsMagic     = 0x01021994
)

// mounttest prints facts about paths and creates files. The order of the steps
// is fixed, so that one call can check a mount, write into it and read back.
func mounttest(args []string) int {
	var fsType, mode, perm, owner, content, loop string
	var newFile struct{ p0644, p0666, p0660, p0777 string }
	var retry int
	var breakOnExpected bool
	flags("mounttest", args, func(f *pflag.FlagSet) {
		f.StringVar(&fsType, "fs_type", "", "path to print the file system type of")
		f.StringVar(&mode, "file_mode", "", "path to print the mode bits of")
		f.StringVar(&perm, "file_perm", "", "path to print the permissions of")
		f.StringVar(&owner, "file_owner", "", "path to print the owning UID and GID of")
		f.StringVar(&newFile.p0644, "new_file_0644", "", "path to write to and read from with mode 0644")
		f.StringVar(&newFile.p0666, "new_file_0666", "", "path to write to and read from with mode 0666")
		f.StringVar(&newFile.p0660, "new_file_0660", "", "path to write to and read from with mode 0660")
		f.StringVar(&newFile.p0777, "new_file_0777", "", "path to write to and read from with mode 0777")
		f.StringVar(&content, "file_content", "", "path to print the content of")
		f.StringVar(&loop, "file_content_in_loop", "", "path to print the content of again and again")
		f.IntVar(&retry, "retry_time", 180, "seconds the loop lasts")
		f.BoolVar(&breakOnExpected, "break_on_expected_content", true, "end the loop when the content is what new_file writes")
	})
	syscall.Umask(0)
	ok := true
	step := func(path string, f func(path string) error) {
		if path != "" && f(path) != nil {
			ok = false
		}
	}
	create := func(mode os.FileMode) func(string) error {
		return func(path string) error { return createFile(path, mode) }
	}
	step(fsType, printFSType)
	step(newFile.p0644, create(0o644))
	step(newFile.p0666, create(0o666))
	step(newFile.p0660, create(0o660))
	step(newFile.p0777, create(0o777))
	step(mode, func(path string) error {
		return printInfo(path, func(i os.FileInfo) { fmt.Printf("mode of file %q: %v\n", path, i.Mode()) })
	})
	step(perm, func(path string) error {
		return printInfo(path, func(i os.FileInfo) { fmt.Printf("perms of file %q: %v\n", path, i.Mode().Perm()) })
	})
	step(owner, func(path string) error {
		return printInfo(path, func(i os.FileInfo) {
			st := i.Sys().(*syscall.Stat_t)
			fmt.Printf("owner UID of %q: %d\nowner GID of %q: %d\n", path, st.Uid, path, st.Gid)
		})
	})
	step(content, printContent)
	step(loop, func(path string) error {
		return printContentInLoop(path, time.Duration(retry)*time.Second, breakOnExpected)
	})
	if !ok {
		return 1
	}
	return 0
}

func printFSType(path string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		fmt.Printf("error from statfs(%q): %v\n", path, err)
		return err
	}
	if st.Type == tmpfsMagic {
		fmt.Printf("mount type of %q: tmpfs\n", path)
	} else {
		fmt.Printf("mount type of %q: %v\n", path, st.Type)
	}
	return nil
}

func printInfo(path string, print func(os.FileInfo)) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		info, err = os.Stat(path)
	}
	if err != nil {
		fmt.Printf("error from Lstat(%q): %v\n", path, err)
		return err
	}
	print(info)
	return nil
}

func createFile(path string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(newFileContent), mode); err != nil {
		fmt.Printf("error writing new file %q: %v\n", path, err)
		return err
	}
	return printContent(path)
}

func printContent(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Printf("error reading file content for %q: %v\n", path, err)
		return err
	}
	fmt.Printf("content of file %q: %s\n", path, data)
	return nil
}

func printContentInLoop(path string, d time.Duration, breakOnExpected bool) (err error) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Second) {
		var data []byte
		if data, err = os.ReadFile(path); err != nil {
			fmt.Printf("Error reading file %s: %v, retrying\n", path, err)
			continue
		}
		fmt.Printf("content of file %q: %s\n", path, data)
		if !breakOnExpected {
			continue
		}
		if string(data) == newFileContent {
			break
		}
		fmt.Printf("Unexpected content. Expected: %s. Retrying", newFileContent)
	}
	return err
}
