from .search.design import SearchDesign as SearchDesign
from .search.design import SearchResult as SearchResult
from .search.driver import SearchReport as SearchReport
from .search.driver import search_critical as search_critical
