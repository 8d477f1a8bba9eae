package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

// loopback is the only address this server ever binds: it has no authentication.
const loopback = "127.0.0.1"

type options struct {
	frontendPort     int
	uiPort           int // 0: no Web UI
	dbFile           string
	namespaces       []string
	searchAttributes map[string]enumspb.IndexedValueType
	exitOnStdinClose bool
	logLevel         string
	readyWithin      time.Duration
}

// parseFlags reads the command line. A frontend port of 0 is replaced by a free one; the ready line
// tells which.
func parseFlags(args []string) (options, error) {
	opts := options{searchAttributes: map[string]enumspb.IndexedValueType{}}
	fs := flag.NewFlagSet("devtemporal", flag.ContinueOnError)
	fs.IntVar(&opts.frontendPort, "frontend-port", 7233, "gRPC port on 127.0.0.1; 0 picks a free one")
	fs.IntVar(&opts.uiPort, "ui-port", 0, "Web UI port on 127.0.0.1; 0 means no Web UI")
	fs.StringVar(&opts.dbFile, "db", "", "SQLite `FILE` that outlives this process; empty keeps everything in memory")
	fs.BoolVar(&opts.exitOnStdinClose, "exit-on-stdin-close", false, "end when standard input closes, that is, when the parent is gone")
	fs.StringVar(&opts.logLevel, "log-level", "error", "debug, info, warn or error; the log goes to standard error")
	fs.DurationVar(&opts.readyWithin, "ready-within", time.Minute, "give up when not ready by then")
	fs.Func("namespace", "namespace `NAME` to register (repeatable; default \"default\")", func(name string) error {
		if name == "" {
			return fmt.Errorf("a namespace needs a name")
		}
		opts.namespaces = append(opts.namespaces, name)
		return nil
	})
	fs.Func("search-attribute", "search attribute `NAME=TYPE` to register in each namespace (repeatable; TYPE is one of "+strings.Join(attributeTypes(), ", ")+")",
		opts.addSearchAttribute)
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q; everything is a flag, see --help", fs.Arg(0))
	}
	if len(opts.namespaces) == 0 {
		opts.namespaces = []string{"default"}
	}
	if opts.frontendPort == 0 {
		free, err := freePorts(1)
		if err != nil {
			return options{}, err
		}
		opts.frontendPort = free[0]
	}
	return opts, nil
}

func (o *options) addSearchAttribute(arg string) error {
	name, typ, ok := strings.Cut(arg, "=")
	if !ok || name == "" {
		return fmt.Errorf("want NAME=TYPE, for example NodeID=Keyword")
	}
	value, known := searchAttributeTypes()[typ]
	if !known {
		return fmt.Errorf("unknown type %q; use one of %s", typ, strings.Join(attributeTypes(), ", "))
	}
	o.searchAttributes[name] = value
	return nil
}

// searchAttributeTypes maps the names that Temporal's own tools print to the protocol's values.
func searchAttributeTypes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		"Text":        enumspb.INDEXED_VALUE_TYPE_TEXT,
		"Keyword":     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"KeywordList": enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		"Int":         enumspb.INDEXED_VALUE_TYPE_INT,
		"Double":      enumspb.INDEXED_VALUE_TYPE_DOUBLE,
		"Bool":        enumspb.INDEXED_VALUE_TYPE_BOOL,
		"Datetime":    enumspb.INDEXED_VALUE_TYPE_DATETIME,
	}
}

func attributeTypes() []string { return slices.Sorted(maps.Keys(searchAttributeTypes())) }

// freePorts asks the kernel for n distinct free ports. They are held together until all are known,
// so none is given twice.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, fmt.Errorf("find a free port on %s: %w", loopback, err)
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// requireFree says in one line what the server would say in a hundred. A port of 0 is not asked
// for.
func requireFree(ctx context.Context, ports ...int) error {
	for _, port := range ports {
		if port == 0 {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address(port))
		if err != nil {
			return fmt.Errorf("choose another port or stop what uses this one: %w", err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("try port %d: %w", port, err)
		}
	}
	return nil
}
