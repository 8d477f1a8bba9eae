package redfishsim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// SettingsKind says what a vendor's settings object of a system holds.
type SettingsKind string

// The kinds of settings object. Pending is a settings object that carries the
// boot order only, so the override stays on the system itself (as recorded from
// an XClarity controller); Either takes the override in both places; Only
// refuses the override on the system.
const (
	SettingsNone    SettingsKind = ""
	SettingsPending SettingsKind = "pending"
	SettingsEither  SettingsKind = "either"
	SettingsOnly    SettingsKind = "only"
)

// PatchAnswer is what a vendor sends after a good PATCH.
type PatchAnswer string

// The answers to a PATCH: 204, 200 with the resource, 200 with a message.
const (
	AnswerEmpty    PatchAnswer = "empty"
	AnswerResource PatchAnswer = "resource"
	AnswerMessage  PatchAnswer = "message"
)

// MediaSlot is one virtual media slot.
type MediaSlot struct {
	ID    string
	Types []string
}

// Personality is how one vendor's BMC behaves. The values are of the vendor's
// GPU servers; where they come from a recorded tree the comment says so.
type Personality struct {
	Name         string // Dell, Supermicro, HPE, Lenovo, NVIDIA, or one of Variants
	Manufacturer string
	Product      string
	Version      string // RedfishVersion
	Registry     string // prefix of message ids
	Firmware     string

	SystemID, ManagerID, ChassisID string
	BaseboardID                    string // second system, of the GPU board, without Reset; "" for none
	HideIdentity                   bool   // the host system has empty Model and SerialNumber
	HideCounts                     bool   // the host system has no ProcessorSummary and no MemorySummary
	RackDevice                     bool   // no machine: a BMC with its chassis, and no host
	DPU                            bool   // the system is a DPU: no GPUs, SystemType says so
	HostDPUs                       int    // DPUs in the host: systems of their own behind the host's BMC
	Leaks                          bool   // the chassis is cooled by liquid and has leak detectors
	Cartridges                     int    // chassis of cable cartridges, each with a serial number of its own
	TrailingSlash                  bool   // links end in "/"

	ResetTypes    []string
	ResetByInfo   bool          // allowable values only in the ActionInfo resource
	AlreadyStatus int           // answer to a reset that asks for the present state
	OnHoldOff     time.Duration // 409 on On for this long after the machine went off

	BootTargets  []string
	BootEnabled  []string
	BootMode     bool // BootSourceOverrideMode exists
	BootNeedsAll bool // a PATCH without Enabled and Mode is taken, then reverts
	Settings     SettingsKind
	SettingsName string // last path segment of the settings object
	PostLock     bool   // the boot section is locked while the host is in POST

	WeakETag     bool
	InlineETag   bool // @odata.etag in the body too
	NeedsIfMatch bool // 428 for a PATCH without If-Match
	AnyTagOnly   bool // 412 for every If-Match but *, as AMI's accounts answer
	Answer       PatchAnswer

	LED     bool // IndicatorLED
	Locator bool // LocationIndicatorActive

	DriveLocationArray bool // Drive.Location is an array (recorded from iDRAC9)

	Media            []MediaSlot
	MediaByPatch     bool          // no InsertMedia action: PATCH Image and Inserted
	MediaStrict      bool          // refuses Inserted and WriteProtected in InsertMedia
	MediaNeedsProto  bool          // InsertMedia needs TransferProtocolType
	EjectNeedsObject bool          // EjectMedia needs a body of {}
	EjectLinger      time.Duration // Inserted reads true for this long after an eject

	SessionLimit   int
	SessionTimeout time.Duration

	AccountID        string
	AccountByName    bool // account ids are user names
	AccountSlots     int  // fixed slots filled by PATCH; 0 = POST to the collection
	ChangePassword   bool // ManagerAccount.ChangePassword action
	MinPassword      int
	MaxPassword      int
	PasswordSorts    int  // how many of upper, lower, digit and other a password must mix; 0 is any
	ChangeEndsOwn    bool // a changed password ends the session that changed it too
	LockoutThreshold int
	LockoutDuration  time.Duration
	SaysLocked       bool // tells a locked account apart from a wrong password

	SystemLogs  []string // log services under the system
	ManagerLogs []string // log services under the manager
}

// Names lists the personalities.
func Names() []string { return []string{"Dell", "Supermicro", "HPE", "Lenovo", "NVIDIA"} }

// Variants lists the personalities of further machines of those vendors: a rack node with two
// systems, DPUs, cable cartridges, leak detectors and hidden counts; a DPU; and a board of before
// boot modes. The vendor stands before the hyphen.
func Variants() []string { return []string{"NVIDIA-GB200", "NVIDIA-BlueField", "Supermicro-X11"} }

// RackDevices lists the personalities of what stands in a rack beside its machines: a BMC without a
// host.
func RackDevices() []string { return []string{"NVIDIA-SwitchTray", "NVIDIA-PowerShelf"} }

// PersonalityOf returns a personality by name, in any case.
func PersonalityOf(name string) (Personality, error) {
	for _, build := range []func() Personality{dell, supermicro, hpe, lenovo, nvidia, gb200, bluefield, supermicroX11, switchTray, powerShelf} {
		if p := build(); strings.EqualFold(p.Name, name) {
			return p, nil
		}
	}
	return Personality{}, fmt.Errorf("no BMC personality %q: use one of %s", name, strings.Join(slices.Concat(Names(), Variants(), RackDevices()), ", "))
}

func dell() Personality {
	return Personality{
		Name: "Dell", Manufacturer: "Dell Inc.", Product: "Integrated Dell Remote Access Controller",
		Version: "1.13.1", Registry: "Base.1.12", Firmware: "6.00.30.00",
		SystemID: "System.Embedded.1", ManagerID: "iDRAC.Embedded.1", ChassisID: "System.Embedded.1",
		ResetTypes:    []string{"On", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PushPowerButton", "Nmi", "PowerCycle"},
		AlreadyStatus: 409, OnHoldOff: 10 * time.Second,
		BootTargets: []string{"None", "Pxe", "Floppy", "Cd", "Hdd", "BiosSetup", "UefiHttp"},
		BootEnabled: []string{"Once", "Continuous", "Disabled"}, BootMode: true,
		Answer: AnswerMessage, LED: true, Locator: true, DriveLocationArray: true,
		Media:       []MediaSlot{{"CD", []string{"CD", "DVD"}}, {"RemovableDisk", []string{"USBStick"}}},
		EjectLinger: 3 * time.Second, SessionLimit: 8, SessionTimeout: 30 * time.Minute,
		AccountID: "2", AccountSlots: 16, MinPassword: 8, MaxPassword: 40,
		ManagerLogs: []string{"Sel", "Lclog"},
	}
}

func supermicro() Personality {
	return Personality{
		Name: "Supermicro", Manufacturer: "Supermicro", Product: "Supermicro BMC",
		Version: "1.11.0", Registry: "Base.1.10", Firmware: "01.04.13",
		SystemID: "1", ManagerID: "1", ChassisID: "1",
		ResetTypes:  []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn"},
		ResetByInfo: true, AlreadyStatus: 204,
		BootTargets: []string{"None", "Pxe", "Floppy", "Cd", "Usb", "UsbCd", "Hdd", "BiosSetup", "UefiHttp"},
		BootEnabled: []string{"Once", "Continuous", "Disabled"}, BootMode: true, BootNeedsAll: true,
		Answer: AnswerResource, LED: true,
		Media:       []MediaSlot{{"VirtualMedia1", []string{"CD", "DVD"}}},
		MediaStrict: true, SessionLimit: 16, SessionTimeout: 10 * time.Minute,
		AccountID: "2", ChangePassword: true, MinPassword: 8, MaxPassword: 20, PasswordSorts: 3, ChangeEndsOwn: true,
		LockoutThreshold: 3, LockoutDuration: 30 * time.Second,
		SystemLogs: []string{"Log1"},
	}
}

func hpe() Personality {
	return Personality{
		Name: "HPE", Manufacturer: "HPE", Product: "ProLiant DL380a Gen11",
		Version: "1.17.0", Registry: "Base.1.16", Firmware: "iLO 6 v1.55",
		SystemID: "1", ManagerID: "1", ChassisID: "1", TrailingSlash: true,
		ResetTypes:    []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PushPowerButton", "GracefulRestart"},
		AlreadyStatus: 400,
		BootTargets:   []string{"None", "Cd", "Hdd", "Usb", "SDCard", "Utilities", "Diags", "BiosSetup", "Pxe", "UefiShell", "UefiHttp", "UefiTarget"},
		BootEnabled:   []string{"Disabled", "Once", "Continuous"}, BootMode: true,
		Settings: SettingsEither, SettingsName: "settings", PostLock: true,
		WeakETag: true, Answer: AnswerMessage, LED: true, Locator: true,
		Media:            []MediaSlot{{"1", []string{"Floppy", "USBStick"}}, {"2", []string{"CD", "DVD"}}},
		EjectNeedsObject: true, SessionLimit: 20, SessionTimeout: 30 * time.Minute,
		AccountID: "1", MinPassword: 8, MaxPassword: 39,
		SystemLogs: []string{"IML"}, ManagerLogs: []string{"IEL"},
	}
}

func lenovo() Personality { // ids, timeouts, lockout and media slots as recorded from an SR670
	p := Personality{
		Name: "Lenovo", Manufacturer: "Lenovo", Product: "Lenovo XClarity Controller",
		Version: "1.10.0", Registry: "Base.1.8", Firmware: "TGBT20E 1.40 2021-05-17",
		SystemID: "1", ManagerID: "1", ChassisID: "1",
		ResetTypes:    []string{"On", "Nmi", "GracefulShutdown", "GracefulRestart", "ForceOn", "ForceOff", "ForceRestart"},
		AlreadyStatus: 204,
		BootTargets:   []string{"None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "UefiHttp"},
		BootEnabled:   []string{"Once", "Disabled"}, BootMode: true,
		Settings: SettingsPending, SettingsName: "Pending",
		InlineETag: true, Answer: AnswerResource, LED: true,
		MediaByPatch: true, SessionLimit: 16, SessionTimeout: 300 * time.Second,
		AccountID: "1", MinPassword: 10, MaxPassword: 32, PasswordSorts: 2,
		LockoutThreshold: 5, LockoutDuration: time.Hour, SaysLocked: true,
		SystemLogs: []string{"PlatformLog", "AuditLog"},
	}
	for i := range 4 {
		p.Media = append(p.Media, MediaSlot{fmt.Sprintf("EXT%d", i+1), []string{"CD", "DVD", "Floppy", "USBStick"}})
	}
	return p
}

func nvidia() Personality {
	return Personality{
		Name: "NVIDIA", Manufacturer: "NVIDIA", Product: "DGX H100 BMC",
		Version: "1.15.0", Registry: "Base.1.13", Firmware: "HGX-23.11-1",
		SystemID: "System_0", ManagerID: "BMC_0", ChassisID: "Chassis_0",
		BaseboardID: "HGX_Baseboard_0", HideIdentity: true,
		ResetTypes:    []string{"On", "ForceOn", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle", "Nmi"},
		AlreadyStatus: 204,
		BootTargets:   []string{"None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb", "UefiHttp"},
		BootEnabled:   []string{"Once", "Continuous", "Disabled"},
		Settings:      SettingsOnly, SettingsName: "Settings",
		NeedsIfMatch: true, Answer: AnswerEmpty, Locator: true,
		Media:           []MediaSlot{{"USB1", []string{"USBStick", "CD"}}},
		MediaNeedsProto: true, SessionLimit: 64, SessionTimeout: 30 * time.Minute,
		AccountByName: true, MinPassword: 13, MaxPassword: 20,
		LockoutThreshold: 4, LockoutDuration: 600 * time.Second,
		SystemLogs: []string{"EventLog", "SEL"},
	}
}

// gb200 is a node of a rack: its shapes are those recorded from a GH200, whose host has no serial
// number, keeps the override in its settings object and shows no boot mode.
func gb200() Personality {
	p := nvidia()
	p.Name, p.Product, p.Version, p.Firmware = "NVIDIA-GB200", "P3809", "1.17.0", "GB200Nvl-24.10-9"
	p.ChassisID, p.HideCounts, p.Cartridges, p.HostDPUs, p.Leaks = "BMC_0", true, 4, 2, true
	p.BootTargets = []string{"None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"}
	p.Media = []MediaSlot{{"USB1", []string{"USBStick", "CD"}}, {"USB2", []string{"USBStick", "CD"}}}
	return p
}

// bluefield is the BMC of a DPU: one system, which is the DPU itself.
func bluefield() Personality {
	p := nvidia()
	p.Name, p.Product, p.Version, p.Firmware = "NVIDIA-BlueField", "BlueField-3 DPU", "1.17.0", "BF-24.04-5"
	p.SystemID, p.ManagerID, p.ChassisID = "Bluefield", "Bluefield_BMC", "Card1"
	p.BaseboardID, p.HideIdentity, p.DPU = "", false, true
	p.BootMode, p.BootTargets = true, []string{"None", "Pxe", "UefiHttp", "UefiShell", "UefiTarget", "Hdd", "Cd", "BiosSetup"}
	return p
}

// switchTray is an NVLink switch of a rack, powerShelf what feeds the rack.
func switchTray() Personality {
	p := nvidia()
	p.Name, p.Product, p.Firmware = "NVIDIA-SwitchTray", "NVLink switch tray", "88.0002.1950"
	p.RackDevice, p.BaseboardID, p.SystemID = true, "", ""
	p.ManagerID, p.ChassisID, p.Leaks = "BMC_0", "MGX_NVSwitch_0", true
	p.SystemLogs, p.ManagerLogs = nil, []string{"SEL", "EventLog"}
	return p
}

func powerShelf() Personality {
	p := switchTray()
	p.Name, p.Product, p.Firmware = "NVIDIA-PowerShelf", "33 kW power shelf", "r1.3.7"
	p.ChassisID, p.Leaks = "powershelf", false
	return p
}

// supermicroX11 is a board of before boot modes: the target itself names the firmware.
func supermicroX11() Personality {
	p := supermicro()
	p.Name, p.Product, p.Version, p.Registry, p.Firmware = "Supermicro-X11", "X11 BMC", "1.0.1", "Base.1.4", "01.73.06"
	p.BootTargets = []string{"None", "Pxe", "Floppy", "Cd", "Usb", "UsbCd", "Hdd", "BiosSetup", "UefiPxe", "UefiCd", "UefiUsbCd"}
	p.BootMode, p.BootNeedsAll = false, false
	p.ChangePassword, p.AccountSlots, p.PasswordSorts = false, 10, 0
	return p
}

func (p Personality) allows(list []string, v string) bool { return slices.Contains(list, v) }
