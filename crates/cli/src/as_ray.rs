//! `carril as-ray -- COMMAND …`: runs a command in which the name `ray` stands for us.
//!
//! One directory with only `ray` in it stands in front of `PYTHONPATH`, one with the command `ray` in front of `PATH`. Where
//! the command is a Python script, its head is started before it, so that the imports of the two overlap. `--install` puts
//! the names into the Python environment instead: there no command needs anything in front.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use carril_client::{Client, PrivateOptions, start_private};
use carril_types::PythonRuntime;
use clap::Args;

use crate::NodeLimits;

#[derive(Args)]
pub struct AsRay {
    #[command(flatten)]
    limits: NodeLimits,
    /// Let `ray` stand for carril in this Python environment, with nothing in front of the commands
    #[arg(long, conflicts_with_all = ["uninstall", "command", "num_cpus", "num_gpus", "resources"])]
    install: bool,
    /// Take back what `--install` has done
    #[arg(long, conflicts_with_all = ["command", "num_cpus", "num_gpus", "resources"])]
    uninstall: bool,
    /// The command and its arguments, after `--`
    #[arg(required_unless_present_any = ["install", "uninstall"], trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl AsRay {
    pub fn run(self) -> ExitCode {
        match self.execute() {
            Ok(never) => never,
            Err(message) => {
                eprintln!("error: {message}");
                ExitCode::from(2)
            }
        }
    }

    fn execute(self) -> Result<ExitCode, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find the carril command itself: {error}"))?;
        if self.install || self.uninstall {
            return change_environment(&own, if self.install { "install" } else { "uninstall" });
        }
        let is_ray = self.command[0] == "ray";
        let program = if is_ray { Some(own.clone()) } else { find_program(&self.command[0]) };
        let named = self.command[0].to_string_lossy();
        let way =
            if named.ends_with(".py") { format!("\nhint: `carril as-ray -- python {named}`") } else { String::new() };
        let program = program.ok_or_else(|| format!("`{named}` is not found{way}"))?;
        let python = python_of(&program, &own);
        let names = names_directory(&python, &own)?;
        let script = Script::of(&program, &self.command);
        if let Some(script) = &script {
            script.check()?;
        }
        let mut command =
            if is_ray { Command::new(names.join("bin").join("ray")) } else { Command::new(&self.command[0]) };
        command.args(&self.command[1..]);
        set_names(&mut command, &names);
        // For the record of a run, so that `carril resume` gives them again.
        command.env("CARRIL_AS_RAY_OPTIONS", self.limits.arguments().join("\n"));
        let options = PrivateOptions {
            cpus: self.limits.num_cpus,
            gpus: self.limits.num_gpus,
            resources: self.limits.resources.clone(),
            environment: Vec::new(),
        };
        let wanted =
            script.is_some() || options.cpus.is_some() || options.gpus.is_some() || !options.resources.is_empty();
        if wanted {
            let path = script.as_ref().and_then(|script| script.path.clone());
            let socket = start_head(&own, &options, &program, script.is_some(), path, &names)?;
            command.env("CARRIL_HEAD", socket);
        }
        let error = command.exec();
        Err(format!("cannot run `{named}`: {error}{way}"))
    }
}

/// Puts the names into the environment of this command, or takes them out. Python knows where its files go.
fn change_environment(own: &Path, what: &str) -> Result<ExitCode, String> {
    let python = python_of(Path::new(""), own);
    let mut command = Command::new(&python);
    // Isolated: what is beside the caller, or in its PYTHONPATH, is no part of the environment.
    command.args(["-I", "-m", "carril.as_ray.install", what]);
    Err(format!("cannot run `{}`: {}", python.display(), command.exec()))
}

/// A command that is a Python interpreter, with the script that it runs, if it runs one.
struct Script {
    path: Option<PathBuf>,
    options: Vec<String>,
}

impl Script {
    fn of(program: &Path, command: &[OsString]) -> Option<Self> {
        let name = program.file_name()?.to_str()?;
        if !name.starts_with("python") && !name.starts_with("pypy") {
            return None;
        }
        let mut options = Vec::new();
        let mut arguments = command[1..].iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy();
            match text.as_ref() {
                "-m" | "-c" | "-" => return Some(Self { path: None, options }),
                "-W" | "-X" => drop(arguments.next()),
                option if option.starts_with('-') => options.push(option.to_owned()),
                path => return Some(Self { path: Some(PathBuf::from(path)), options }),
            }
        }
        Some(Self { path: None, options })
    }

    /// Notices what would put another `ray` before ours.
    fn check(&self) -> Result<(), String> {
        let isolated = |option: &&String| !option.starts_with("--") && option.contains(['I', 'E']);
        if let Some(option) = self.options.iter().find(isolated) {
            return Err(format!(
                "python's option `{option}` ignores PYTHONPATH, so `ray` would not stand for carril\nhint: leave the option out"
            ));
        }
        // Python looks first beside the script, and in the working directory where there is none.
        let directory = self.path.as_ref().and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let beside = [directory.join("ray.py"), directory.join("ray").join("__init__.py")];
        match beside.iter().find(|path| path.exists()) {
            Some(path) => Err(format!(
                "`{}` stands where Python looks first, so `import ray` would find it and not carril\nhint: rename or move it",
                std::path::absolute(path).unwrap_or_else(|_| path.clone()).display()
            )),
            None => Ok(()),
        }
    }
}

/// Where the names are: a directory that holds `path`, `bin` and `bash_env.sh`.
fn names_directory(python: &Path, own: &Path) -> Result<PathBuf, String> {
    let below_prefix = own.parent().and_then(Path::parent).into_iter().flat_map(|prefix| {
        let lib = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
        lib.map(|entry| entry.path().join("site-packages")).chain([prefix.to_owned()]).collect::<Vec<_>>()
    });
    for packages in below_prefix {
        let names = packages.join("carril").join("as_ray");
        if names.join("path").join("ray").is_dir() {
            return Ok(names);
        }
    }
    // Installed in another place than the command: the interpreter knows.
    let ask = "import carril, os; print(os.path.join(os.path.dirname(carril.__file__), 'as_ray'))";
    let output = Command::new(python).args(["-c", ask]).output();
    let names = output
        .ok()
        .filter(|output| output.status.success())
        .map(|output| PathBuf::from(OsString::from(String::from_utf8_lossy(&output.stdout).trim())));
    names.filter(|names| names.join("path").join("ray").is_dir()).ok_or_else(|| {
        format!(
            "the Python package carril is not found by `{}`\nhint: install carril into the environment that runs the command",
            python.display()
        )
    })
}

fn set_names(command: &mut Command, names: &Path) {
    let (path, bin) = (names.join("path"), names.join("bin"));
    let front = |first: &Path, variable: &str| {
        let mut value = first.as_os_str().to_owned();
        if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
            value.push(":");
            value.push(rest);
        }
        value
    };
    command.env("PYTHONPATH", front(&path, "PYTHONPATH")).env("PATH", front(&bin, "PATH"));
    command.env("CARRIL_AS_RAY", "1").env("CARRIL_AS_RAY_PATH", &path).env("CARRIL_AS_RAY_BIN", &bin);
    let bash_env = names.join("bash_env.sh");
    if let Some(previous) = std::env::var_os("BASH_ENV").filter(|previous| *previous != *bash_env.as_os_str()) {
        command.env("CARRIL_AS_RAY_BASH_ENV", previous);
    }
    command.env("BASH_ENV", &bash_env).env("ENV", &bash_env);
}

/// Starts the head that ends with this process, which becomes the command.
fn start_head(
    own: &Path,
    options: &PrivateOptions,
    python: &Path,
    prepare: bool,
    script: Option<PathBuf>,
    names: &Path,
) -> Result<PathBuf, String> {
    let head = start_private(own, std::process::id(), options).map_err(|failure| failure.to_string())?;
    if prepare {
        let script = script.and_then(|path| std::path::absolute(path).ok()).map(|path| path.display().to_string());
        let executable = python.display().to_string();
        let path = vec![names.join("path").display().to_string()];
        let asked = async {
            let client = Client::connect(&head.socket).await?;
            client.prepare(PythonRuntime { executable, path }, Vec::new(), script).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // What fails here fails again, and better said, when the script asks for its run.
        if let Ok(runtime) = runtime {
            let _ = runtime.block_on(asked);
        }
    }
    Ok(head.socket)
}

fn find_program(name: &OsString) -> Option<PathBuf> {
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return path.exists().then(|| path.to_owned());
    }
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories).map(|directory| directory.join(path)).find(|path| path.is_file())
}

/// The interpreter to ask: the command itself, where it is one, else the one beside this command.
fn python_of(program: &Path, own: &Path) -> PathBuf {
    let is_python = program.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python"));
    if is_python {
        return program.to_owned();
    }
    let beside = own.parent().map(|directory| directory.join("python3")).filter(|path| path.exists());
    beside.unwrap_or_else(|| PathBuf::from("python3"))
}
