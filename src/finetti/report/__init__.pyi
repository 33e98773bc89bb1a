from .writer import check_directory as check_directory
from .writer import render as render
from .writer import write_figures as write_figures
from .writer import write_report as write_report
from .writer import write_results as write_results
