from .ledger_page import render as render
from .ledger_page import write_figures as write_figures
from .ledger_page import write_report as write_report
from .reproduction import Reproduction as Reproduction
from .reproduction import reproduce_claims as reproduce_claims
