//! Options of all commands that read a configuration.

use crate::runtime::operator_files::{EnvironmentUse, OperatorFiles, ProgramName};
use clap::Args;
use std::path::PathBuf;

/// Files, and parameters that win over them.
#[derive(Args)]
pub struct ConfigFileArgs {
    /// Configuration file, in pgpool.conf's format.
    #[arg(short = 'f', long = "config", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A parameter that wins over the file.
    #[arg(short = 'c', long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    pub settings: Vec<(String, String)>,
    /// Read WEIR_PARAMETER from the environment, which wins over the file; WEIR_PARAMETER_FILE names a file with the value.
    #[arg(long)]
    config_from_environment: bool,
    /// Rules of who may connect, used with enable_pool_hba; by default pool_hba.conf beside the configuration file.
    #[arg(short = 'a', long = "hba-file", value_name = "FILE")]
    hba_file: Option<PathBuf>,
    /// Users of PCP; by default pcp.conf beside the configuration file. Without that file PCP is not served.
    #[arg(short = 'F', long = "pcp-file", value_name = "FILE")]
    pcp_file: Option<PathBuf>,
    /// File with the key of encrypted passwords; by default $PGPOOLKEYFILE, then ~/.pgpoolkey.
    #[arg(short = 'k', long = "key-file", value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl ConfigFileArgs {
    pub fn environment(&self) -> EnvironmentUse {
        if self.config_from_environment { EnvironmentUse::Parameters } else { EnvironmentUse::Ignored }
    }

    pub fn files(&self) -> OperatorFiles {
        OperatorFiles {
            config: self.file.clone(),
            settings: self.settings.clone(),
            environment: self.environment(),
            hba: self.hba_file.clone(),
            pcp: self.pcp_file.clone(),
            key: self.key_file.clone(),
            takes_over: false,
            called: ProgramName::Weir,
        }
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_string(), value.trim().to_string()))
}
