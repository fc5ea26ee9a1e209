// The Go side of `cargo bench --bench mdtest`: runs operations of the JuiceFS Go client's metadata
// layer in phases, one directory for each goroutine, and prints a line "PHASE OPS/S" for each phase.
//
// usage: meta-peer META-URL NAME GOROUTINES COUNT
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/juicedata/juicefs/pkg/meta"
	"github.com/juicedata/juicefs/pkg/utils"
	"github.com/sirupsen/logrus"
)

const listings = 5

func check(what string, errno syscall.Errno) {
	if errno != 0 {
		fmt.Fprintf(os.Stderr, "%s: %s\n", what, errno)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return n
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: meta-peer META-URL NAME GOROUTINES COUNT")
		os.Exit(2)
	}
	utils.SetLogLevel(logrus.ErrorLevel)
	width, count := number(os.Args[3]), number(os.Args[4])

	conf := meta.DefaultConf()
	conf.NoBGJob = true
	conf.SkipDirMtime = 100 * time.Millisecond
	m := meta.NewClient(os.Args[1], conf)
	if _, err := m.Load(true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := m.NewSession(true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx := meta.NewContext(1, 0, []uint32{0})

	var root meta.Ino
	check("mkdir", m.Mkdir(ctx, meta.RootInode, os.Args[2], 0755, 0, 0, &root, nil))
	dirs := make([]meta.Ino, width)
	files := make([][]meta.Ino, width)
	for t := range dirs {
		check("mkdir", m.Mkdir(ctx, root, fmt.Sprintf("d%d", t), 0755, 0, 0, &dirs[t], nil))
		files[t] = make([]meta.Ino, count)
	}

	phase := func(name string, each int, op func(t, i int) syscall.Errno) {
		var group sync.WaitGroup
		start := time.Now()
		for t := 0; t < width; t++ {
			group.Add(1)
			go func(t int) {
				defer group.Done()
				for i := 0; i < each; i++ {
					check(name, op(t, i))
				}
			}(t)
		}
		group.Wait()
		fmt.Printf("%s %.1f\n", name, float64(width*each)/time.Since(start).Seconds())
	}

	phase("mkdir", count, func(t, i int) syscall.Errno {
		var ino meta.Ino
		return m.Mkdir(ctx, dirs[t], fmt.Sprintf("m%d", i), 0755, 0, 0, &ino, nil)
	})
	phase("create", count, func(t, i int) syscall.Errno {
		var attr meta.Attr
		name := fmt.Sprintf("f%d", i)
		if st := m.Create(ctx, dirs[t], name, 0644, 0, syscall.O_EXCL, &files[t][i], &attr); st != 0 {
			return st
		}
		return m.Close(ctx, files[t][i])
	})
	phase("lookup", count, func(t, i int) syscall.Errno {
		var ino meta.Ino
		var attr meta.Attr
		return m.Lookup(ctx, dirs[t], fmt.Sprintf("f%d", i), &ino, &attr, false)
	})
	phase("getattr", count, func(t, i int) syscall.Errno {
		var attr meta.Attr
		return m.GetAttr(ctx, files[t][i], &attr)
	})
	phase("setattr", count, func(t, i int) syscall.Errno {
		attr := meta.Attr{Mode: 0600}
		return m.SetAttr(ctx, files[t][i], meta.SetAttrMode, 0, &attr)
	})
	phase("write", count, func(t, i int) syscall.Errno {
		var id uint64
		if st := m.NewSlice(ctx, &id); st != 0 {
			return st
		}
		slice := meta.Slice{Id: id, Size: 4096, Len: 4096}
		return m.Write(ctx, files[t][i], 0, 0, slice, time.Now())
	})
	phase("readdir", listings, func(t, _ int) syscall.Errno {
		var entries []*meta.Entry
		return m.Readdir(ctx, dirs[t], 1, &entries)
	})
	phase("rename", count, func(t, i int) syscall.Errno {
		var ino meta.Ino
		var attr meta.Attr
		old, new := fmt.Sprintf("f%d", i), fmt.Sprintf("g%d", i)
		return m.Rename(ctx, dirs[t], old, dirs[t], new, 0, &ino, &attr)
	})
	phase("unlink", count, func(t, i int) syscall.Errno {
		return m.Unlink(ctx, dirs[t], fmt.Sprintf("g%d", i))
	})
	phase("rmdir", count, func(t, i int) syscall.Errno {
		return m.Rmdir(ctx, dirs[t], fmt.Sprintf("m%d", i))
	})

	if err := m.CloseSession(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
