package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	clusterName = "active"
	// retention keeps closed workflows long enough for a developer to come back to them after a
	// weekend.
	retention = 7 * 24 * time.Hour
)

type staticHosts map[primitives.ServiceName]static.Hosts

// serverConfig lays out one process with all four services. Membership is static: with gossip, a
// restart on the same database file would first look for the dead process's addresses.
func serverConfig(opts options) (*config.Config, staticHosts, error) {
	free, err := freePorts(3)
	if err != nil {
		return nil, nil, err
	}
	ports := map[primitives.ServiceName]int{
		primitives.FrontendService: opts.frontendPort,
		primitives.HistoryService:  free[0],
		primitives.MatchingService: free[1],
		primitives.WorkerService:   free[2],
	}
	services := map[string]config.Service{}
	hosts := staticHosts{}
	for name, port := range ports {
		services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
		hosts[name] = static.SingleLocalHost(address(port))
	}
	off := "disabled"
	return &config.Config{
		Services: services,
		Persistence: config.Persistence{
			DefaultStore:     sqliteplugin.PluginName,
			VisibilityStore:  sqliteplugin.PluginName,
			NumHistoryShards: 1, // SQLite has one writer; more shards would only wait for each other
			DataStores:       map[string]config.DataStore{sqliteplugin.PluginName: {SQL: sqliteStore(opts.dbFile)}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address(opts.frontendPort)},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: address(opts.frontendPort)},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: off},
			Visibility: config.VisibilityArchival{State: off},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: off},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: off},
		}},
	}, hosts, nil
}

// sqliteStore: in a file, write-ahead logging with synchronous=normal is measured to be as fast as
// memory and survives a kill.
func sqliteStore(file string) *config.SQL {
	store := &config.SQL{PluginName: sqliteplugin.PluginName, ConnectAttributes: map[string]string{}}
	if file == "" {
		store.DatabaseName = fmt.Sprintf("devtemporal-%d", os.Getpid())
		store.ConnectAttributes["mode"] = "memory"
		store.ConnectAttributes["cache"] = "shared"
		return store
	}
	store.DatabaseName = file
	store.ConnectAttributes["mode"] = "rwc"
	store.ConnectAttributes["_journal_mode"] = "wal"
	store.ConnectAttributes["_synchronous"] = "normal"
	return store
}

// prepareStore creates the schema of a new database file and registers the namespaces that are not
// there yet. It is safe to repeat.
func prepareStore(opts options, cfg *config.Config) error {
	if opts.dbFile != "" {
		if err := createSchema(opts.dbFile); err != nil {
			return err
		}
	}
	namespaces := make([]*sqlite.NamespaceConfig, 0, len(opts.namespaces))
	for _, name := range opts.namespaces {
		ns, err := sqlite.NewNamespaceConfig(clusterName, name, false, opts.searchAttributes)
		if err != nil {
			return fmt.Errorf("namespace %q: %w", name, err)
		}
		ns.Detail.Config.Retention = durationpb.New(retention)
		namespaces = append(namespaces, ns)
	}
	if err := sqlite.CreateNamespaces(cfg.Persistence.DataStores[sqliteplugin.PluginName].SQL, namespaces...); err != nil {
		return fmt.Errorf("register the namespaces (is %q a database of another Temporal version? then delete it): %w", opts.dbFile, err)
	}
	return nil
}

// createSchema builds a new database beside its place and renames it, so that a kill in between
// never leaves half a schema.
func createSchema(file string) error {
	switch _, err := os.Stat(file); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look at the database file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the folder of the database file: %w", err)
	}
	fresh := fmt.Sprintf("%s.new-%d", file, os.Getpid())
	store := sqliteStore(fresh)
	delete(store.ConnectAttributes, "_journal_mode") // one plain file, nothing beside it to rename
	if err := sqlite.SetupSchema(store); err != nil {
		return errors.Join(fmt.Errorf("create the database schema in %s: %w", file, err), os.Remove(fresh))
	}
	if err := os.Rename(fresh, file); err != nil {
		return fmt.Errorf("put the database file in place: %w", err)
	}
	return nil
}

func newServer(opts options, cfg *config.Config, hosts staticHosts) (temporal.Server, error) {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: opts.logLevel, Format: "console"}))
	srv, err := temporal.NewServer(
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
		temporal.WithDynamicConfigClient(dynamicConfig()),
	)
	if err != nil {
		return nil, fmt.Errorf("put the Temporal server together: %w", err)
	}
	return srv, nil
}

// dynamicConfig states what Slipway relies on even where it is the server's default today, and
// turns off what would leave this machine.
func dynamicConfig() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.EnableDeploymentVersions.Key():                           true, // Worker Versioning
		dynamicconfig.FrontendEnableWorkerVersioningWorkflowAPIs.Key():         true,
		dynamicconfig.FrontendEnableUpdateWorkflowExecution.Key():              true, // operator actions are Updates
		dynamicconfig.FrontendEnableUpdateWorkflowExecutionAsyncAccepted.Key(): true,
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key():            true,                   // a new attribute is usable at once
		dynamicconfig.NamespaceCacheRefreshInterval.Key():                      250 * time.Millisecond, // and a new namespace soon
		dynamicconfig.EnableServerVersionCheck.Key():                           false,
		dynamicconfig.HistoryShutdownDrainDuration.Key():                       time.Duration(0),
		dynamicconfig.FrontendShutdownDrainDuration.Key():                      time.Duration(0),
		dynamicconfig.MatchingShutdownDrainDuration.Key():                      time.Duration(0),
	}
}
